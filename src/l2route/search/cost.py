"""The cost by which settings are compared."""

from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher


def bytes_read(searcher: Searcher, found: SearchResult) -> float:
    """Mean number of bytes of vectors that a query read, for routing and rerank."""
    routed = found.n_routing.mean() * searcher.space.rows[0].nbytes
    return float(routed + found.n_rerank.mean() * searcher.base.rows[0].nbytes)
