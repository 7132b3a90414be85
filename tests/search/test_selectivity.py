"""Laws of settings under filters: a setting per band of shares, which reaches the recall."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.index import RoutingIndex, load
from l2route.search.selectivity import BANDS, band_of

N, DIM, K = 4000, 16, 5
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(300, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> RoutingIndex:
    """An index with codes, and validation queries like those of the tests."""
    index = RoutingIndex.build(VECTORS, degree=12, ef_construction=40)
    index.compress("int4")
    index.validate_with(RNG.normal(size=(300, DIM)))
    return index


@given(share=st.floats(0, 1))
def test_bands_have_every_share(share: float) -> None:
    """A share belongs to the narrowest band that begins at or below it, the lowest below all."""
    band = band_of(share)
    assert band in BANDS
    assert band <= share or band == BANDS[-1]
    assert not [other for other in BANDS if band < other <= share]


@pytest.mark.parametrize("share", [0.97, 0.6, 0.3, 0.1, 0.01, 0.001, 0.0])
def test_recall_holds_under_filters(index: RoutingIndex, share: float) -> None:
    """With `recall=`, answers under a filter reach it on other queries and another filter."""
    passes = np.random.default_rng(5).random(N) < share
    found = index.search(QUERIES, K, recall=0.9, where=passes)
    rows = np.flatnonzero(passes)
    if len(rows) >= K:
        truth = exact_neighbors(VECTORS[rows], QUERIES, K, "l2")
        assert recall_at(found.distances, truth.distances * (1 + 1e-5), K) >= 0.87
    assert ((found.ids >= 0).sum(axis=1) == min(K, len(rows))).all()


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
@pytest.mark.parametrize("is_far", [False, True])
def test_recall_holds_wherever_what_passes_is(
    index: RoutingIndex, share: float, is_far: bool
) -> None:
    """With `recall=`, answers reach it where only the nearest pass, or only the farthest."""
    distances = ((VECTORS[None] - QUERIES[:40, None]) ** 2).sum(axis=2)
    order = np.argsort(-distances if is_far else distances, axis=1)[:, : round(share * N)]
    for together in (False, True):
        recalls = []
        for query, rows in zip(QUERIES[:40], order, strict=True):
            queries = np.repeat(query[None], 8, axis=0) if together else query[None]
            found = index.search(queries, K, recall=0.9, where=np.sort(rows))
            truth = exact_neighbors(VECTORS[rows], queries, K, "l2")
            recalls.append(recall_at(found.distances, truth.distances * (1 + 1e-5), K))
        assert np.mean(recalls) >= 0.87


def test_settings_of_a_changed_index_are_of_its_vectors() -> None:
    """Slots without vectors are no neighbours to find: settings are as of an index built anew."""
    index = RoutingIndex.build(VECTORS, degree=12, ef_construction=40)
    index.compress("int8")
    index.validate_with(QUERIES)
    index.add(RNG.normal(size=(5, DIM)))
    index.delete(np.arange(0, N, 40))
    passes = np.random.default_rng(7).random(len(index)) < 0.6
    index.plan(K, recall=0.9, where=passes)
    settings = {each["share"]: each for each in index.info()["settings"]}
    assert settings[0.5]["recall"] >= 0.9
    assert 0 < settings[0.5]["scan_rerank"] <= 2 * K


def test_settings_are_kept_by_share(index: RoutingIndex, tmp_path: Path) -> None:
    """`info` has a setting per band that was searched, and saved indexes have them too."""
    shares = (0.97, 0.6, 0.55, 0.01)
    for share in shares:
        index.plan(K, recall=0.8, where=np.random.default_rng(6).random(N) < share)
    kept = {each["share"] for each in index.info()["settings"] if each["target"] == 0.8}
    assert kept == {1.0, *(band_of(share) for share in shares)}
    index.save(tmp_path / "saved.l2r")
    assert load(tmp_path / "saved.l2r").info()["settings"] == index.info()["settings"]


def test_bands_of_queries_are_independent(index: RoutingIndex) -> None:
    """Queries with filters of different bands are answered as one by one."""
    shares = (0.97, 0.6, 0.01, 0.3, 0.6)
    masks = [np.random.default_rng(i).random(N) < share for i, share in enumerate(shares)]
    together = index.search(QUERIES[:5], K, recall=0.8, where=masks)
    for i, mask in enumerate(masks):
        alone = index.search(QUERIES[i], K, recall=0.8, where=mask)
        assert together.ids[i].tolist() == alone.ids[0].tolist()
        assert together.distances[i].tolist() == alone.distances[0].tolist()
        assert together.counts[:, i].tolist() == alone.counts[:, 0].tolist()
    with pytest.raises(ValueError, match="expected one filter or 4, one per query, got 5"):
        index.search(QUERIES[:4], K, recall=0.8, where=masks)
    with pytest.raises(ValueError, match="expected one filter for all queries with a trace"):
        index.search(QUERIES[:5], K, recall=0.8, where=masks, trace=True)
