"""Laws of curves: recall against cost, as searches have it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from indexes import DIM, VALIDATION, built, with_everything
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors


@pytest.mark.parametrize("space", ["original", "original-int8"])
def test_curve_is_that_of_searches(space: str) -> None:
    """Each point has the recall and the cost of searches for the validation queries."""
    index = with_everything()
    curve = index.recall_curve(5, space=space, n_queries=30)
    assert (curve.space, curve.k, curve.n_queries) == (space, 5, 30)
    truth = exact_neighbors(index.base.vectors(), VALIDATION[:30], 5)
    assert len(curve.points) > 1
    for point in (*curve.points, *curve.chosen):
        limits: dict[str, Any] = point.limits._asdict()
        found = index.search(VALIDATION[:30], 5, space=space, **limits)
        assert point.n_computed == pytest.approx(found.n_computed.mean())
        assert point.recall == pytest.approx(recall_at(found.distances, truth.distances, 5))
    json.dumps(curve.to_dict(), allow_nan=False)
    costs = [point.n_computed for point in curve.points]
    assert costs == sorted(costs)


def test_curve_marks_what_recall_chose() -> None:
    """The settings that were measured are marked, with the recall that they are for."""
    index = with_everything()
    (chosen,) = index.recall_curve(5).chosen
    assert chosen.target == 0.9
    assert chosen.limits == index.setting(0.9, 5).limits
    assert index.recall_curve(5, space="original").chosen == ()
    assert index.settings == (index.setting(0.9, 5),)
    index.setting(0.5, 5, space="original")
    index.setting(0.5, 3)
    assert {(each.k, each.target) for each in index.settings} == {(5, 0.9), (5, 0.5), (3, 0.5)}
    assert index.space_names == tuple(space.name for space in index.spaces)


def test_curve_of_a_living_index() -> None:
    """After changes the curve is that of the vectors there are now."""
    index = built(degree=8)
    index.validate_with(VALIDATION)
    index.delete(index.ids[:300])
    index.add(np.random.default_rng(0).normal(size=(30, DIM)))
    curve = index.recall_curve(5)
    ids = index.ids
    truth = exact_neighbors(index.vectors(ids), VALIDATION, 5)
    for point in curve.points:
        found = index.search(VALIDATION, 5, **point.limits._asdict())
        assert point.recall == pytest.approx(recall_at(found.distances, truth.distances, 5))
    assert curve.points[-1].recall >= 0.995


@pytest.mark.parametrize(
    ("k", "n_queries", "message"),
    [(0, 10, "expected k in"), (1000, 10, "expected k in"), (5, 0, "expected n_queries")],
)
def test_what_cannot_be_measured(k: int, n_queries: int, message: str) -> None:
    """Errors say what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        with_everything().recall_curve(k, n_queries=n_queries)


def test_without_validation_queries() -> None:
    """Without validation queries the message says how to get some."""
    with pytest.raises(ValueError, match="call learn or validate_with first"):
        built().recall_curve()
