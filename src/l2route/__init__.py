"""Graph nearest-neighbour search that learns from queries."""

from importlib.metadata import version

from l2route.index import RoutingIndex, load
from l2route.interop.imports import from_faiss, from_hnswlib
from l2route.search.searcher import SearchResult
from l2route.search.space import Budget

__all__ = ["Budget", "RoutingIndex", "SearchResult", "from_faiss", "from_hnswlib", "load"]
__version__ = version("l2route")
