"""Laws of `prepare`: the order of the steps, and steps given as functions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.recipe.steps import ROUTINGS, Recipe, Routing, prepare


def draw(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Normal vectors [n, 16]."""
    return np.random.default_rng(seed).normal(size=(n, 16)).astype(np.float32)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_steps_are_those_of_an_index(routing: Routing) -> None:
    """`prepare` gives the same index as separate calls of build, renumber and compress."""
    recipe = Recipe(routing=routing, degree=8, ef_construction=40, n_threads=1)
    index = prepare(draw(500), recipe)
    by_hand = RoutingIndex.build(draw(500), degree=8, ef_construction=40)
    by_hand.renumber()
    if routing != "float32":
        by_hand.compress("int8" if routing == "auto" else routing, vectors="float16")
    found, expected = (each.search(draw(20, 1), 5, ef=20) for each in (index, by_hand))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    assert index.info() == by_hand.info()


def test_steps_are_watched_in_order() -> None:
    """`watch` is called once per step, in order, with the index that the step returned.

    Progress is reported with the names of the steps.
    """
    seen, reported = list[str](), set[str]()
    other = RoutingIndex.build(draw(50), degree=8)

    def watch(step: str, seconds: float, index: RoutingIndex) -> None:
        assert seconds >= 0
        seen.append(f"{step} {len(index)}")

    index = prepare(
        draw(300),
        Recipe(graph="nsw", degree=8),
        learn=lambda index: other,
        compress=lambda index: index,
        watch=watch,
        progress=lambda step, done, total: reported.add(step),
    )
    assert seen == ["build 300", "refine 300", "learn 50", "renumber 50", "compress 50"]
    assert index is other
    assert reported == {"build", "refine"}


def test_the_own_graph_is_not_refined() -> None:
    """l2route's own graph is built in one step."""
    seen: list[str] = []
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    prepare(vectors, Recipe(degree=8), watch=lambda step, *_: seen.append(step))
    assert seen == ["build", "renumber", "compress"]
