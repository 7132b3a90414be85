"""Laws of exact spaces, and of spaces of codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from indexes import QUERIES, VECTORS, built
from l2route.data.vectors import METRICS, Metric
from l2route.search.base import BaseVectors
from l2route.search.codes import COMPRESSIONS, compress_space, to_float16
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.limits import Limits
from l2route.search.origin import with_origin
from l2route.search.searcher import Searcher
from l2route.search.space import Codes, RoutingSpace, original_space, pca_space


@pytest.mark.parametrize("metric", METRICS)
def test_only_the_original_space_is_exact(metric: Metric) -> None:
    """Every space but the original one is reranked, even if it has the same rows."""
    base = BaseVectors.of(VECTORS, metric)
    exact = original_space(base)
    assert exact.is_exact
    assert original_space(to_float16(base)).is_exact
    others = [pca_space(base, 5), RoutingSpace(base.rows, base.dim, base.scorer)]
    others += [compress_space(exact, compression) for compression in COMPRESSIONS]
    if metric == "cosine":
        others.append(with_origin(exact, base))
    assert not any(space.is_exact for space in others)
    graph = built().graph
    for space in (exact, *others):
        searcher = Searcher(graph, space, base)
        found = searcher.search(QUERIES, 3, limits=Limits(ef=20))
        assert searcher.reranks == (not space.is_exact)
        assert (found.n_rerank > 0).all() == (not space.is_exact)


def test_the_original_space_shares_its_rows() -> None:
    """The original space shares its rows with the vectors, also after they change."""
    index = built()
    for change in (index.renumber, lambda: index.compress(None, vectors="float16")):
        change()
        assert index.spaces[0].is_exact
        assert index.spaces[0].rows is index.base.rows


def test_scores_that_cannot_be_distances_are_not_exact() -> None:
    """An exact space with a query matrix, bias or codes, or with other rows, is refused."""
    base = BaseVectors.of(VECTORS, "l2")
    exact = original_space(base)
    ones = np.ones(base.dim, np.float32)
    message = "expected an exact space without query matrix, rotation, centre, bias and codes"
    with pytest.raises(ValueError, match=message):
        replace(exact, bias=np.zeros(len(VECTORS), np.float32))
    with pytest.raises(ValueError, match=message):
        replace(exact, query_matrix=np.eye(base.dim, dtype=np.float32))
    coded = compress_space(exact, "int8")
    with pytest.raises(ValueError, match=message):
        replace(coded, bias=None, codes=Codes(8, ones, ones), is_exact=True)
    with pytest.raises(ValueError, match="expected an exact space to have rows like the vectors"):
        Searcher(built().graph, exact, to_float16(base))
    with pytest.raises(ValueError, match="expected an exact space to have rows like the vectors"):
        Searcher(built().graph, exact, BaseVectors.of(VECTORS, "ip"))


def test_spaces_of_codes_are_checked() -> None:
    """Codes need an offset, a scale and the scorer ip; floats must have no codes."""
    rows = pad_rows(np.zeros((4, 5), dtype=np.uint8))
    ones = np.ones(5, dtype=np.float32)
    codes = Codes(8, ones, ones)
    assert rows.shape[1] == padded_dim(5, np.uint8) == 64
    RoutingSpace(rows, 5, "ip", codes=codes)
    RoutingSpace(rows, 5, "ip", codes=Codes(4, ones, ones))
    floats = pad_rows(np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match="or floats, got uint8 without codes"):
        RoutingSpace(rows, 5, "ip")
    with pytest.raises(ValueError, match="or floats, got float32 with codes"):
        RoutingSpace(floats, 5, "ip", codes=codes)
    with pytest.raises(ValueError, match="expected codes scored by ip, got 'l2'"):
        RoutingSpace(rows, 5, "l2", codes=codes)
    expected = r"expected offset and scale \[5\], got \(5,\) and \(4,\)"
    with pytest.raises(ValueError, match=expected):
        RoutingSpace(rows, 5, "ip", codes=Codes(8, ones, ones[:4]))
    with pytest.raises(ValueError, match="expected codes of 2, 4 or 8 bits, got 3"):
        Codes(3, ones, ones)
    with pytest.raises(ValueError, match=r"expected rows \[4, 128\], got \(4, 64\)"):
        RoutingSpace(rows, 200, "ip", codes=Codes(4, ones.repeat(40), ones.repeat(40)))
    with pytest.raises(ValueError, match="expected a finite origin or none, got inf"):
        RoutingSpace(floats, 5, "ip", origin=np.inf)
    with pytest.raises(ValueError, match="expected rows of float32, float16, uint8, got float64"):
        RoutingSpace(np.zeros((4, 16)), 5, "ip")
