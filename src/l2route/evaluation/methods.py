"""Search libraries behind one small protocol, ours among them; those not installed are left out."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data import Dataset, Metric, normalize
from l2route.graph import faiss_metric, faiss_threads
from l2route.index import RoutingIndex

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
_ANNOY: dict[Metric, str] = {"l2": "euclidean", "ip": "dot", "cosine": "angular"}
_USEARCH: dict[Metric, str] = {"l2": "l2sq", "ip": "ip", "cosine": "cos"}
_PYNNDESCENT: dict[Metric, str] = {"l2": "euclidean", "cosine": "cosine"}


class Method(Protocol):
    """A library: build once, then set the knob and search, as often as one likes; one thread."""

    def build(self, data: Dataset) -> None:
        """Index the base vectors; a method that learns takes the training queries too."""

    def set(self, knob: int) -> None:
        """How hard to search: more is slower and finds more."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest [n_queries, k]; −1 where fewer were found."""

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances that each search for k computes [n_queries]; None if the library is mute."""


class FaissHnsw:
    """faiss.IndexHNSWFlat; the knob is efSearch."""

    def __init__(self, degree: int = 32, ef_construction: int = 200, seed: int = 0) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        self.metric = data.metric
        dim = data.base.shape[1]
        self.index = faiss.IndexHNSWFlat(dim, self.degree // 2, faiss_metric(data.metric))
        self.index.hnsw.efConstruction = self.ef_construction
        self.index.hnsw.rng = faiss.RandomGenerator(self.seed)
        with faiss_threads(1):
            self.index.add(_unit(data.base, data.metric))

    def set(self, knob: int) -> None:
        """Set efSearch."""
        self.index.hnsw.efSearch = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        with faiss_threads(1):
            return _ids(self.index.search(_unit(queries, self.metric), k)[1])

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances by faiss's own statistics."""
        stats = faiss.cvar.hnsw_stats
        counts = []
        for query in _unit(queries, self.metric):
            stats.reset()
            self.index.search(query[None], k)
            counts.append(stats.ndis)
        return np.array(counts, dtype=np.int64)


class FaissNsg:
    """faiss.IndexNSGFlat; the knob is search_L."""

    def __init__(self, degree: int = 32, n_neighbors: int = 64) -> None:
        self.degree, self.n_neighbors = degree, n_neighbors

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        _refuse_ip("NSG", data.metric)
        self.metric = data.metric
        self.index = faiss.IndexNSGFlat(data.base.shape[1], self.degree, faiss.METRIC_L2)
        self.index.GK = self.n_neighbors
        with faiss_threads(1):
            self.index.add(_unit(data.base, data.metric))

    def set(self, knob: int) -> None:
        """Set search_L."""
        self.index.nsg.search_L = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        with faiss_threads(1):
            return _ids(self.index.search(_unit(queries, self.metric), k)[1])

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Nothing: faiss does not count for NSG."""
        return None


class Hnswlib:
    """hnswlib.Index; the knob is ef."""

    def __init__(self, degree: int = 32, ef_construction: int = 200, seed: int = 0) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed
        self._library = import_module("hnswlib")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        n, dim = data.base.shape
        self.index = self._library.Index(space=data.metric, dim=dim)
        self.index.init_index(
            n, M=self.degree // 2, ef_construction=self.ef_construction, random_seed=self.seed
        )
        self.index.set_num_threads(1)
        self.index.add_items(data.base)

    def set(self, knob: int) -> None:
        """Set ef."""
        self.index.set_ef(knob)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return _ids(self.index.knn_query(queries, k)[0])

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Nothing: hnswlib's Python package does not count."""
        return None


class Annoy:
    """annoy.AnnoyIndex, trees of random splits; the knob is search_k."""

    def __init__(self, n_trees: int = 100, seed: int = 0) -> None:
        self.n_trees, self.seed, self.knob = n_trees, seed, -1
        self._library = import_module("annoy")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        self.index = self._library.AnnoyIndex(data.base.shape[1], _ANNOY[data.metric])
        self.index.set_seed(self.seed)
        for i, vector in enumerate(data.base):
            self.index.add_item(i, vector)
        self.index.build(self.n_trees, n_jobs=1)

    def set(self, knob: int) -> None:
        """Set search_k."""
        self.knob = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return _padded([self._inspect(query, k) for query in queries], k)

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Points inspected: asked for all, Annoy answers with those; splits are not counted."""
        everything = self.index.get_n_items()
        counts = [len(self._inspect(query, everything)) for query in queries]
        return np.array(counts, dtype=np.int64)

    def _inspect(self, query: Vectors, n: int) -> list[int]:
        found: list[int] = self.index.get_nns_by_vector(query, n, search_k=self.knob)
        return found


class Usearch:
    """usearch.index.Index; the knob is expansion_search."""

    def __init__(self, degree: int = 32, ef_construction: int = 200) -> None:
        self.degree, self.ef_construction = degree, ef_construction
        self._library = import_module("usearch.index")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        n, dim = data.base.shape
        self.index = self._library.Index(
            ndim=dim,
            metric=_USEARCH[data.metric],
            dtype="f32",
            connectivity=self.degree // 2,
            expansion_add=self.ef_construction,
        )
        self.index.add(np.arange(n), data.base, threads=1)

    def set(self, knob: int) -> None:
        """Set expansion_search."""
        self.index.expansion_search = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        found = self.index.search(queries, k, threads=1)
        if len(queries) == 1:
            return _padded([found.keys.tolist()], k)
        places = np.arange(found.keys.shape[1])
        ids = np.where(places < found.counts[:, None], found.keys.astype(np.int64), -1)
        return np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances by usearch's own count."""
        found = [self.index.search(query, k, threads=1) for query in queries]
        return np.array([matches.computed_distances for matches in found], dtype=np.int64)


class PyNNDescent:
    """pynndescent.NNDescent; the knob is a thousand times epsilon."""

    def __init__(self, n_neighbors: int = 30, seed: int = 0) -> None:
        self.n_neighbors, self.seed, self.epsilon = n_neighbors, seed, 0.1
        self._library = import_module("pynndescent")

    def build(self, data: Dataset) -> None:
        """Index the base vectors, and compile what searches."""
        _refuse_ip("pynndescent", data.metric)
        self.index = self._library.NNDescent(
            data.base,
            metric=_PYNNDESCENT[data.metric],
            n_neighbors=min(self.n_neighbors, len(data.base) - 1),
            random_state=self.seed,
            n_jobs=1,
        )
        self.index.prepare()

    def set(self, knob: int) -> None:
        """Set epsilon."""
        self.epsilon = knob / 1000

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return _ids(self.index.query(queries, k, epsilon=self.epsilon)[0])

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Nothing: pynndescent does not count."""
        return None


class L2route:
    """Ours, plain; the knob is the budget."""

    def __init__(self, degree: int = 32, ef_construction: int = 300, seed: int = 0) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed
        self.budget = 256

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        self.index = RoutingIndex.build(
            data.base,
            data.metric,
            degree=self.degree,
            ef_construction=self.ef_construction,
            seed=self.seed,
        )

    def set(self, knob: int) -> None:
        """Set the budget."""
        self.budget = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return self.index.search(queries, k, self.budget, n_threads=1).ids

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """All distances, rerank and projection included."""
        found = self.index.search(queries, k, self.budget, n_threads=1)
        return np.ceil(found.n_computed).astype(np.int64)


METHODS: dict[str, Callable[[int], Method]] = {
    "l2route": lambda seed: L2route(seed=seed),
    "faiss-hnsw": lambda seed: FaissHnsw(seed=seed),
    "faiss-nsg": lambda _: FaissNsg(),
    "hnswlib": lambda seed: Hnswlib(seed=seed),
    "annoy": lambda seed: Annoy(seed=seed),
    "usearch": lambda _: Usearch(),
    "pynndescent": lambda seed: PyNNDescent(seed=seed),
}
"""By name, made from a seed where the library takes one."""


def make_methods(names: Iterable[str], seed: int = 0) -> tuple[dict[str, Method], dict[str, str]]:
    """Methods of these names, and of those that cannot be had here, why not."""
    made: dict[str, Method] = {}
    skipped: dict[str, str] = {}
    for name in names:
        if name not in METHODS:
            raise ValueError(f"expected a method of {', '.join(METHODS)}, got {name!r}")
        try:
            made[name] = METHODS[name](seed)
        except ImportError as error:
            skipped[name] = f'{error}; pip install "l2route[bench]"'
    return made, skipped


def knob_for(method: Method, queries: Vectors, k: int, budget: float) -> int:
    """The largest knob at which searches compute no more distances than a budget, on average.

    Args:
        method: what counts its distances.
        queries: queries to count on; not those that the result is measured with.
        k: answers per query.
        budget: distance computations per query.
    """

    def mean(knob: int) -> float:
        method.set(knob)
        counts = method.count(queries, k)
        if counts is None:
            raise ValueError("expected a method that counts its distances, got a mute one")
        return float(counts.mean())

    if (least := mean(1)) > budget:
        raise ValueError(f"expected a method that can stay within {budget:g}, got {least:.0f}")
    low, high = 1, 2
    while high < 1 << 24 and mean(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) <= budget else (low, middle)
    method.set(low)
    return low


def _unit(vectors: Vectors, metric: Metric) -> Vectors:
    """Vectors as faiss takes them: it has no cosine, l2 between unit vectors has its order."""
    return normalize(vectors) if metric == "cosine" else vectors


def _refuse_ip(name: str, metric: Metric) -> None:
    if metric == "ip":
        raise ValueError(f"expected metric l2 or cosine for {name}, got ip")


def _ids(found: Any) -> Ids:
    return np.asarray(found).astype(np.int64)


def _padded(rows: list[list[int]], k: int) -> Ids:
    """Lists of different lengths as one array, −1 at the ends [n, k]."""
    ids = np.full((len(rows), k), -1, dtype=np.int64)
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    return ids
