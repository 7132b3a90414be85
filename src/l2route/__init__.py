"""Graph nearest-neighbour search that learns from queries."""

from importlib.metadata import version

from l2route.index import RoutingIndex, load
from l2route.interop.imports import from_faiss, from_hnswlib
from l2route.search.limits import Budget
from l2route.search.result import SearchResult

__all__ = ["Budget", "RoutingIndex", "SearchResult", "from_faiss", "from_hnswlib", "load"]
__version__ = version("l2route")
