"""Peers behind one protocol: each finds what exact search finds, and counts where it can."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.evaluation.compare import peers
from l2route.evaluation.compare.methods import (
    METHODS,
    VARIANTS,
    L2route,
    Method,
    Routed,
    Variant,
    knob_for,
    make_methods,
)
from l2route.evaluation.compare.peers import Annoy, FaissHnsw

N, DIM, K = 400, 8, 10
HARD = {"annoy": 100_000, "pynndescent": 500}
"""Knobs at which a library searches as hard as it can; 400 for the others."""
COUNTS = ("l2route", "faiss-hnsw", "annoy", "usearch")


def make_data(metric: Metric = "l2") -> Dataset:
    """Vectors in general position, and queries near them."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(N, DIM)).astype(np.float32)
    query = base[:30] + 0.3 * rng.normal(size=(30, DIM)).astype(np.float32)
    return Dataset("small", base, query, metric=metric)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "pynndescent" else name
        for name in METHODS
    ],
)
def test_every_method_finds_what_is_there(name: str) -> None:
    """At its hardest a method has almost all of the ten nearest; one query is answered alike."""
    made, skipped = make_methods([name])
    assert not skipped
    method, data = made[name], make_data()
    method.build(data)
    method.set(HARD.get(name, N))
    found = method.search(data.query, K)
    truth = exact_neighbors(data.base, data.query, K).ids
    shares = [len(set(a) & set(b)) / K for a, b in zip(found, truth, strict=True)]
    assert found.shape == (len(data.query), K)
    assert found.dtype == np.int64
    assert np.mean(shares) > 0.97
    assert (method.search(data.query[:1], K) == found[:1]).all()


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, marks=pytest.mark.slow) if name == "pynndescent" else variant
        for variant in VARIANTS
        if (name := variant.method)
    ],
    ids=lambda variant: f"{variant.method} {variant.label}",
)
def test_every_variant_finds_what_is_there(variant: Variant, metric: Metric) -> None:
    """At the last of its knobs that it reaches; it has a size, and knobs that ascend."""
    data = make_wide_data(metric)
    method = variant.make(0, 0.01)
    if metric == "ip" and variant.method in ("faiss-nsg", "pynndescent"):
        with pytest.raises(ValueError, match="expected metric l2 or cosine"):
            method.build(data)
        return
    method.build(data)
    assert list(method.knobs) == sorted(set(method.knobs))
    set_hardest(method)
    found = method.search(data.query, K)
    assert found.shape == (len(data.query), K)
    assert found.dtype == np.int64
    truth = exact_neighbors(data.base, data.query, K, metric).ids
    shares = [len(set(a) & set(b)) / K for a, b in zip(found, truth, strict=True)]
    is_coarse = metric == "ip" or variant.label == "reorder 40"  # few true distances at the end
    assert np.mean(shares) > (0.8 if is_coarse else 0.9)
    size = method.n_bytes()
    if variant.method != "pynndescent":
        assert size is not None
        assert size > data.base.nbytes / 2  # half floats at the least


def set_hardest(method: Method) -> None:
    """Set the last knob that the method can reach."""
    for knob in reversed(method.knobs):
        try:
            method.set(knob)
        except ValueError:
            continue
        return
    pytest.fail("no knob in reach")


def make_wide_data(metric: Metric) -> Dataset:
    """Vectors wide enough for all, with training queries."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1500, 64)).astype(np.float32) * np.linspace(1, 0.1, 64, dtype="f4")
    near = base[:230] + 0.1 * rng.normal(size=(230, 64)).astype(np.float32)
    return Dataset("wide", base, near[:30], learn=near[30:], metric=metric)


@pytest.mark.parametrize("learns", [True, False])
def test_a_served_index_may_be_narrower(learns: bool) -> None:
    """Codes of fewer dimensions, learned or by PCA; as ever with half floats to rerank by."""
    data = make_wide_data("l2")
    method = Routed("int8", learns=learns, dim=32, minutes=0.01)
    method.build(data)
    space = method.index.spaces[-1]
    assert (space.dim, str(space.rows.dtype)) == (32, "uint8")
    assert method.index.base.rows.dtype == np.float16
    method.set(900)
    counts = method.count(data.query, K)
    assert counts is not None
    assert (counts > K).all()
    assert (method.learn_seconds > 0) == learns
    with pytest.raises(ValueError, match="expected training queries"):
        method.build(make_data())


@pytest.mark.parametrize("metric", ["cosine", "ip"])
@pytest.mark.parametrize(
    "name", ["l2route", "faiss-hnsw", "faiss-nsg", "hnswlib", "annoy", "usearch"]
)
def test_other_metrics(name: str, metric: Metric) -> None:
    """Cosine and inner product rank as exact search does, where a library has them."""
    method, data = METHODS[name](0), make_data(metric)
    if (name, metric) == ("faiss-nsg", "ip"):
        with pytest.raises(ValueError, match="expected metric l2 or cosine for NSG"):
            method.build(data)
        return
    method.build(data)
    method.set(HARD.get(name, N))
    truth = exact_neighbors(data.base, data.query, 1, metric).ids
    assert (method.search(data.query, 1) == truth).mean() > 0.9


@pytest.mark.parametrize("name", METHODS)
def test_counts_grow_with_the_knob(name: str) -> None:
    """A method that counts computes more when asked to search harder; the others say nothing."""
    if name == "pynndescent":  # it is mute before it is built, too
        assert METHODS[name](0).count(make_data().query, 1) is None
        return
    method, data = METHODS[name](0), make_data()
    method.build(data)
    method.set(16)
    few = method.count(data.query, 1)
    if name not in COUNTS:
        assert few is None
        return
    method.set(160)
    many = method.count(data.query, 1)
    assert few is not None
    assert many is not None
    assert few.shape == (len(data.query),)
    assert 0 < few.mean() < many.mean() <= 1.5 * N


def test_annoy_counts_the_points_it_inspects() -> None:
    """Every inspected point may be an answer: as many answers as were counted, and no more."""
    method, data = Annoy(), make_data()
    method.build(data)
    method.set(50)
    counts = method.count(data.query, 1)
    assert counts is not None
    found = method.search(data.query, N)
    assert ((found >= 0).sum(axis=1) == counts).all()


@pytest.mark.parametrize("kind", [Annoy, FaissHnsw, L2route])
def test_the_knob_for_a_budget_is_the_largest_within_it(kind: Any) -> None:
    """The next larger knob computes more than the budget, on average."""
    method, data = kind(), make_data()
    method.build(data)
    knob = knob_for(method, data.query, 1, 100)
    means = []
    for value in (knob, knob + 1):
        method.set(value)
        counts = method.count(data.query, 1)
        assert counts is not None
        means.append(counts.mean())
    assert means[0] <= 100 < means[1]


def test_a_method_that_cannot_search_so_little_is_refused() -> None:
    """Annoy looks at whole leaves: one point is too few."""
    method, data = Annoy(), make_data()
    method.build(data)
    with pytest.raises(ValueError, match="expected a method that can stay within 1, got"):
        knob_for(method, data.query, 1, 1)


def test_a_mute_method_has_no_knob_for_a_budget() -> None:
    """It is refused, not guessed."""
    method, data = METHODS["hnswlib"](0), make_data()
    method.build(data)
    with pytest.raises(ValueError, match="counts its distances"):
        knob_for(method, data.query, 1, 100)


def test_a_library_that_is_not_installed_is_skipped_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are there; the reason names what to install."""

    def no_annoy(name: str) -> Any:
        if name == "annoy":
            raise ImportError("No module named 'annoy'")
        return import_module(name)

    monkeypatch.setattr(peers, "import_module", no_annoy)
    made, skipped = make_methods(["annoy", "hnswlib"])
    assert list(made) == ["hnswlib"]
    assert skipped == {"annoy": "No module named 'annoy'; pip install \".[bench]\""}


def test_an_unknown_method_is_refused() -> None:
    """All names are said."""
    with pytest.raises(ValueError, match="got 'guess'"):
        make_methods(["guess"])
