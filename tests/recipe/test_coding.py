"""Laws of the choice of codes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import l2route
from l2route.index import RoutingIndex
from l2route.recipe import coding as coding_module
from l2route.recipe.coding import Coder, Coding, coded, shorter_codings
from l2route.recipe.measuring import Reached, measure
from l2route.recipe.steps import Recipe
from l2route.recipe.timing import Timed
from l2route.search.machine import Machine


def draw(n: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Normal vectors."""
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


@pytest.mark.parametrize("may_project", [False, True])
@pytest.mark.parametrize("dim", [16, 96, 100, 128, 384, 768, 1536])
def test_codings_get_shorter(dim: int, may_project: bool) -> None:
    """Every coding has fewer bytes than the one before, and than a byte per dimension."""
    codings = shorter_codings(dim, dim, may_project=may_project)
    sizes = [each.row_bytes(dim) for each in (Coding("int8"), *codings)]
    assert all(a > b for a, b in pairwise(sizes))
    assert all(each.dim is None or each.dim < dim for each in codings)
    assert may_project or all(each.dim is None for each in codings)


def test_codings_of_384_dimensions() -> None:
    """Between a byte per dimension and one cache line per vector there are three codings."""
    codings = shorter_codings(384, 384, may_project=True)
    assert codings == [Coding("int4"), Coding("int4", dim=256), Coding("int2", dim=256)]
    assert [each.row_bytes(384) for each in codings] == [192, 128, 64]


def test_coded_copies_answer_like_their_source() -> None:
    """A coded copy has the labels, the validation queries and nearly the answers of its source."""
    vectors, queries = draw(1500, 300, 0), draw(400, 300, 1)
    index = RoutingIndex.build(vectors, ids=np.arange(1500) + 7, degree=16, ef_construction=60)
    index.validate_with(queries[:100])
    expected = index.search(queries[:100], 10, ef=200).ids
    for each in (Coding("int8"), Coding("int4", None), Coding("int2", dim=256)):
        copy = coded(index, each, queries)
        assert copy.spaces[-1].rows[0].nbytes == each.row_bytes(300)
        assert copy.validation is not None
        found = copy.search(queries[:100], 10, ef=200, rerank=100).ids
        assert (
            np.mean([len(np.intersect1d(*both)) for both in zip(found, expected, strict=True)]) > 9
        )
    assert index.spaces[-1].name == "original"


def measured_index() -> tuple[RoutingIndex, Recipe, Reached]:
    """An index with validation queries, and what it costs in float32."""
    recipe = Recipe(k=5, recall=0.9, degree=16, ef_construction=60)
    index = RoutingIndex.build(draw(2000, 128, 0), degree=16, ef_construction=60)
    index.validate_with(draw(300, 128, 1))
    assert index.validation is not None
    before = measure(index, recipe, index.validation.judge_each(index.base, 5))
    assert isinstance(before, Reached)
    return index, recipe, before


@pytest.mark.parametrize(("speedup", "kept"), [(1.5, "int4"), (0.9, "int8")])
def test_measured_time_decides(speedup: float, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter codes are kept if searches were faster by them, and not if they were slower."""
    index, recipe, before = measured_index()

    def compare(before: RoutingIndex, _after: RoutingIndex, _recipe: Recipe) -> Timed:
        return Timed(2.0 if before is index else speedup)

    monkeypatch.setattr(Machine, "measured", classmethod(lambda cls: cls(line_ns=(9, 9, 9))))
    monkeypatch.setattr(coding_module, "compare", compare)
    coder = Coder(recipe, index, index.base, None)
    chosen = coder.choose(before)
    assert chosen is not None
    assert chosen[0].routing == kept
    assert chosen[1].cost.recall >= recipe.recall - 0.005
    assert coder.notes[-1] == f"{chosen[0]}: kept"


def test_what_cannot_pay_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bytes cost nothing, shorter codes are not even made."""
    index, recipe, before = measured_index()
    compared = list[RoutingIndex]()

    def compare(before: RoutingIndex, _after: RoutingIndex, _recipe: Recipe) -> Timed:
        compared.append(before)
        return Timed(2.0)

    monkeypatch.setattr(Machine, "measured", classmethod(lambda cls: cls(line_ns=(0, 0, 0))))
    monkeypatch.setattr(coding_module, "compare", compare)
    coder = Coder(recipe, index, index.base, None)
    chosen = coder.choose(before)
    assert chosen is not None
    assert chosen[0] == Coding("int8")
    assert "would save 0.0 µs" in coder.notes[0]
    assert compared == [index]


def test_codes_that_are_slower_than_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """No codes are taken if searches are slower by all of them, unless a type was asked for."""
    index, recipe, before = measured_index()
    monkeypatch.setattr(coding_module, "compare", lambda *_: Timed(0.9))
    coder = Coder(recipe, index, index.base, None)
    assert coder.choose(before) is None
    assert coder.notes[0].endswith("original vectors: 0.90 times as fast as float32")
    assert coder.notes[-1] == "vectors stay float32"
    chosen = Coder(replace(recipe, routing="int8"), index, index.base, None).choose(before)
    assert chosen is not None
    assert chosen[0] == Coding("int8")


def test_half_floats_have_to_hold_every_vector() -> None:
    """A value beyond half floats in a vector that is held out of the measured index is noticed."""
    index, recipe, before = measured_index()
    served = index.base.vectors().copy()
    served[7, 0] = 1e5
    base = RoutingIndex.build(served, degree=4, ef_construction=20).base
    chosen = Coder(replace(recipe, routing="int8"), index, base, None).choose(before)
    assert chosen is not None
    assert (chosen[0].routing, chosen[0].vectors) == ("int8", None)


def test_builds_choose_codes() -> None:
    """A build with `auto` serves by codes that reach the recall, and its note names those tried."""
    vectors, queries = draw(3000, 128, 0), draw(700, 128, 1)
    index, report = l2route.build(vectors, queries, k=5, recall=0.9, minutes=0.02)
    (step,) = (each for each in report.steps if each.name == "compress")
    assert step.note is not None
    assert "int4 routing vectors" in step.note
    assert "kept" in step.note
    assert index.spaces[-1].codes is not None
    assert step.cost is not None
    assert step.cost.recall > 0.89
