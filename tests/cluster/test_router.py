"""Laws of the router among shards, and of learning it."""

from dataclasses import replace

import numpy as np
import pytest

from l2route.cluster.operating import Trial, cheapest_threshold, inner_recalls, recall_of
from l2route.cluster.partition import make_partition
from l2route.cluster.router import LEARNED, Router, chosen_by
from l2route.cluster.router_learning import (
    RouterOptions,
    _gradients,
    _loss,
    _start,
    learn_router,
    shares_of,
)
from sharding import LOG, QUERIES, VECTORS

N_SHARDS = 4
PARTITION = make_partition(VECTORS, N_SHARDS, "l2")
ROUTER = Router(PARTITION)


def shares(queries: np.ndarray) -> np.ndarray:
    """Shares of the ten true neighbours of queries in each shard, by a plain sort."""
    distances = ((queries[:, None] - VECTORS) ** 2).sum(axis=2)
    shards = PARTITION.assign(VECTORS)
    return shares_of(shards[np.argsort(distances, axis=1)[:, :10]], N_SHARDS)


def n_asked(router: Router, queries: np.ndarray, held: np.ndarray, recall: float = 0.95) -> float:
    """Mean number of shards asked at the threshold that finds a share of the neighbours."""
    scores = router.scores(queries)
    order = np.argsort(-scores.ravel(), kind="stable")
    found = held.ravel()[order].cumsum() / len(queries)
    return float((np.searchsorted(found, recall) + 1) / len(queries))


def test_scores_of_centroids_are_offsets() -> None:
    """The score of a shard is how much farther its nearest centroid is, by a plain comparison."""
    distances = np.sqrt(((QUERIES[:, None] - PARTITION.centroids) ** 2).sum(axis=2))
    nearest = np.stack(
        [distances[:, PARTITION.shards == s].min(axis=1) for s in range(N_SHARDS)], 1
    )
    expected = nearest.min(axis=1, keepdims=True) - nearest
    np.testing.assert_allclose(ROUTER.scores(QUERIES), expected, atol=1e-3)
    assert ROUTER.kind == "centroids"


def test_shares_of_neighbours_add_up() -> None:
    """Shares are counts over the neighbours that there are; −1 is none."""
    found = shares_of(np.array([[0, 0, 2, -1], [-1, -1, -1, -1], [1, 1, 1, 1]]), 3)
    np.testing.assert_allclose(found, [[2 / 3, 0, 1 / 3], [0, 0, 0], [0, 1, 0]], rtol=1e-6)


def test_gradients_are_those_of_the_loss() -> None:
    """Every gradient is the slope of the loss, by differences."""
    rng = np.random.default_rng(0)
    features, offsets = ROUTER.features(LOG[:64])
    held = shares(LOG[:64])
    weights = _start(features, offsets, N_SHARDS, RouterOptions(n_hidden=6), rng)
    output = rng.normal(size=weights.output.shape).astype(np.float32)
    weights = replace(weights, output=output)
    for name, gradient in _gradients(weights, features, offsets, held).items():
        at = tuple(int(rng.integers(0, n)) for n in gradient.shape)
        step = 1e-2 * max(1.0, float(abs(getattr(weights, name)[at])))
        sides = []
        for sign in (1, -1):
            moved = getattr(weights, name).astype(np.float64)
            moved[at] += sign * step
            sides.append(_loss(replace(weights, **{name: moved}), features, offsets, held))
        slope = (sides[0] - sides[1]) / (2 * step)
        assert gradient[at] == pytest.approx(slope, rel=0.05, abs=1e-4), name


def test_learning_starts_from_the_centroids() -> None:
    """Before the first step shards have the order that centroids give them."""
    features, offsets = ROUTER.features(QUERIES)
    start = _start(features, offsets, N_SHARDS, RouterOptions(), np.random.default_rng(0))
    predicted = start.shares(features, offsets)
    np.testing.assert_array_equal(predicted.argmax(axis=1), offsets.argmin(axis=1))
    np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-5)


def test_a_learned_router_asks_fewer_shards() -> None:
    """On other queries than the log's, a learned router asks fewer shards for the same recall.

    Measured: 2.76 against 2.92 by centroids, of eight shards.
    """
    rng = np.random.default_rng(0)
    base, log, queries = (rng.normal(size=(n, 6)).astype(np.float32) for n in (2000, 4000, 1000))
    partition = make_partition(base, 8, "l2", n_cells=16)

    def held(rows: np.ndarray) -> np.ndarray:
        products = (rows**2).sum(axis=1)[:, None] + (base**2).sum(axis=1) - 2 * rows @ base.T
        return shares_of(partition.assign(base)[np.argsort(products, axis=1)[:, :10]], 8)

    plain = Router(partition)
    learned = learn_router(plain, log, held(log))
    assert learned.kind == "learned"
    truth = held(queries)
    assert n_asked(learned, queries, truth) < 0.98 * n_asked(plain, queries, truth)


def test_a_short_log_teaches_nothing() -> None:
    """With too few queries the router stays as it is."""
    assert learn_router(ROUTER, LOG[:100], shares(LOG[:100])) is ROUTER


def test_a_router_is_read_as_it_was_written() -> None:
    """A router from its arrays scores as before; arrays that do not fit are refused."""
    learned = learn_router(ROUTER, LOG, shares(LOG), RouterOptions(n_epochs=2))
    arrays = learned.arrays()
    again = Router.of(arrays, PARTITION)
    np.testing.assert_array_equal(again.scores(QUERIES), learned.scores(QUERIES))
    for name in LEARNED:
        wrong = arrays | {f"router_{name}": np.zeros((3, 3), np.float32)}
        with pytest.raises(ValueError, match="expected"):
            Router.of(wrong, PARTITION)
        broken = arrays[f"router_{name}"] * np.float32(np.inf)
        with pytest.raises(ValueError, match="finite"):
            Router.of(arrays | {f"router_{name}": broken}, PARTITION)


def test_the_best_shard_is_always_asked() -> None:
    """A lower threshold asks more shards, and the highest asks one."""
    scores = ROUTER.scores(QUERIES)
    counts = [chosen_by(scores, t).sum() for t in (1.0, 0.0, -1.0, -5.0, -1e9)]
    assert counts == sorted(counts)
    assert counts[0] == len(QUERIES)
    assert counts[-1] == len(QUERIES) * N_SHARDS
    np.testing.assert_array_equal(
        ROUTER.nearest(QUERIES, 1), chosen_by(scores, 1.0) & (scores == 0)
    )
    assert (ROUTER.nearest(QUERIES, 2).sum(axis=1) == 2).all()


def test_the_threshold_reaches_the_recall_and_no_higher_one_does() -> None:
    """Of all thresholds tried, the one that is found reaches the recall with the fewest shards."""
    rng = np.random.default_rng(0)
    n, k = 200, 5
    truth = np.arange(n * k).reshape(n, k)
    holds = rng.integers(0, N_SHARDS, (n, k))
    ids = np.where(holds[None] == np.arange(N_SHARDS)[:, None, None], truth[None], -1)
    distances = np.where(ids < 0, np.inf, 1.0).astype(np.float32)
    trial = Trial(0.9, ids, distances, np.ones((N_SHARDS, n)))
    scores = rng.random((n, N_SHARDS)).astype(np.float32)
    threshold, recall = cheapest_threshold(trial, scores, truth, 0.8)
    assert threshold is not None
    assert recall >= 0.8
    assert recall == recall_of(trial.found(chosen_by(scores, threshold)), truth)
    assert recall_of(trial.found(chosen_by(scores, threshold + 0.02)), truth) < 0.8
    assert cheapest_threshold(trial, scores, truth + 10**6, 0.8)[0] is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [(0.5, [0.5, 0.9]), (0.95, [0.95, 0.97, 0.98, 0.99]), (0.99, [0.99, 0.995]), (1.0, [1.0])],
)
def test_recalls_within_shards_fit_the_recall_in_all(target: float, expected: list[float]) -> None:
    """Shards are calibrated for the recall in all, and for some of what is missed, not for more."""
    assert inner_recalls(target) == expected
