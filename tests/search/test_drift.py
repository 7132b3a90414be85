"""Laws of drift: what is measured, and what is advised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes import VALIDATION, built
from l2route.data.metrics import recall_at
from l2route.index import RoutingIndex
from l2route.search.codes import COMPRESSIONS, Compression, compress_space
from l2route.search.drift import Drift, made_anew, measure_drift, with_gain
from l2route.search.gain import Gain
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.search.validation import Validation
from l2route.state import changes
from l2route.state.info import info

N, DIM = 2000, 16
GAIN = Gain(k=1, budget=64, routing=56, rerank=8, pca_dim=None, plain=0.5, learned=0.6)


def clusters(seed: int, n: int, centre: float) -> NDArray[np.float32]:
    """Vectors around a centre, of another spread in each dimension."""
    spread = np.linspace(0.2, 2, DIM)
    return (np.random.default_rng(seed).normal(size=(n, DIM)) * spread + centre).astype(np.float32)


INDEX = RoutingIndex.build(clusters(0, N, 0.0), degree=8, ef_construction=40)
QUERIES = Validation.of(INDEX.base, clusters(1, 400, 0.0))


def drift_of(space: RoutingSpace) -> Drift:
    """The drift of one space of the index."""
    (drift,) = measure_drift(INDEX.graph, INDEX.base, [original_space(INDEX.base), space], QUERIES)
    return drift


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_codes_that_were_just_made_have_not_drifted(compression: Compression) -> None:
    """A space made from the vectors that there are is as good as one made anew."""
    for source in (original_space(INDEX.base), pca_space(INDEX.base, 8)):
        drift = drift_of(compress_space(source, compression))
        assert drift.now == pytest.approx(drift.anew, abs=0.003)
        assert not drift.encode_again
        assert not drift.learn_again
        assert drift.gain is None


@pytest.mark.parametrize("compression", ["int8", "int4"])
def test_codes_of_other_vectors_have_drifted(compression: Compression) -> None:
    """Scales fitted to vectors elsewhere lose recall; codes fitted anew have it."""
    elsewhere = RoutingIndex.build(clusters(2, N, 30.0), degree=8, ef_construction=40)
    codes = compress_space(original_space(elsewhere.base), compression)
    fresh = compress_space(original_space(INDEX.base), compression)
    numbers = replace(codes, rows=np.zeros_like(fresh.rows), bias=np.zeros(N, np.float32))
    drift = drift_of(numbers)
    assert drift.encode_again
    assert drift.anew > drift.now + 0.1
    assert "encode again" in str(drift)


def test_recalls_are_those_of_the_present_vectors() -> None:
    """Recall is measured at the beam of losses, with true neighbours found anew."""
    space = compress_space(original_space(INDEX.base), "int4")
    stale = Validation(QUERIES.queries, np.zeros_like(QUERIES.neighbors))
    (drift,) = measure_drift(INDEX.graph, INDEX.base, [space], stale)
    found = Searcher(INDEX.graph, space, INDEX.base).search(
        QUERIES.queries, 10, limits=Limits(ef=64)
    )
    nearest = INDEX.base.exact_distances(QUERIES.queries, QUERIES.neighbors[:, :10])
    wanted = recall_at(INDEX.base.exact_distances(QUERIES.queries, found.ids), nearest, 10)
    assert drift.now == pytest.approx(wanted)


@pytest.mark.parametrize("compression", [None, "int4"])
@pytest.mark.parametrize(("learned", "advised"), [(0.3, False), (0.95, True)])
def test_a_lost_gain_is_learned_again(
    compression: Compression | None, learned: float, advised: bool
) -> None:
    """Learning again is advised if little is left of the gain."""
    space = replace(pca_space(INDEX.base, 15), name="learned")
    if compression is not None:
        space = compress_space(space, compression)
    drift = drift_of(replace(space, gain=replace(GAIN, learned=learned)))
    assert drift.k == 1
    assert drift.gain == pytest.approx(learned - 0.5)
    assert drift.learn_again is advised
    assert ("learn again" in str(drift)) is advised


def test_a_compressed_space_has_the_gain_that_is_left() -> None:
    """The gain is measured again when a learned space is compressed, on the validation queries."""
    space = replace(pca_space(INDEX.base, 15), name="learned", gain=GAIN)
    index = RoutingIndex(INDEX.base, INDEX.graph, [space], validation=QUERIES)
    index.compress("int4")
    gain = index.spaces[-1].gain
    assert gain == with_gain(index.spaces[-1], index.graph, index.base, QUERIES).gain
    assert gain is not None
    assert gain.learned != GAIN.learned
    assert gain.plain == drift_of(index.spaces[-1]).plain


def test_pca_is_computed_anew() -> None:
    """A PCA space is compared with the PCA of the vectors that there are now."""
    stale = pca_space(INDEX.base, 4)
    turned = replace(stale, query_matrix=np.ascontiguousarray(np.eye(4, DIM, dtype=np.float32)))
    anew = made_anew(turned, INDEX.base, INDEX.graph)
    np.testing.assert_array_equal(anew.rows, stale.rows)


def test_info_reports_the_drift_that_was_measured() -> None:
    """`info` has the last drift until something changes; it takes validation queries to measure."""
    index = built()
    state = index._current.state
    with pytest.raises(ValueError, match=r"expected validation queries to measure drift on"):
        changes.with_drifts(state)
    index.validate_with(VALIDATION)
    index.compress("int8")
    measured = changes.with_drifts(index._current.state)
    assert [drift["space"] for drift in info(measured)["drifts"]] == ["original-int8"]
    assert info(changes.refined(measured, None, 8, 1.1, 1, None))["drifts"] == []
    assert info(index._current.state)["drifts"] == []
