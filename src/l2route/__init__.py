"""Graph nearest-neighbour search that learns from queries."""

from importlib.metadata import version

from l2route.data.labels import Labels
from l2route.files.storage import StaleError
from l2route.index import RoutingIndex, load
from l2route.interop.faiss_export import to_faiss
from l2route.interop.faiss_import import from_faiss
from l2route.interop.hnswlib_import import from_hnswlib
from l2route.recipe.build import build
from l2route.search.result import SearchResult

__all__ = [
    "Labels",
    "RoutingIndex",
    "SearchResult",
    "StaleError",
    "build",
    "from_faiss",
    "from_hnswlib",
    "load",
    "to_faiss",
]
__version__ = version("l2route")
