"""Other search libraries, a few lines each, behind `protocol.Method`."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.vectors import Metric, normalize
from l2route.evaluation.compare.protocol import Ids, Vectors
from l2route.extras import install
from l2route.graph.knn import faiss_metric, faiss_threads

BEAMS = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640)
"""Beam widths at which graphs are compared."""
_ANNOY: dict[Metric, str] = {"l2": "euclidean", "ip": "dot", "cosine": "angular"}
_USEARCH: dict[Metric, str] = {"l2": "l2sq", "ip": "ip", "cosine": "cos"}
_PYNNDESCENT: dict[Metric, str] = {"l2": "euclidean", "cosine": "cosine"}


class _Peer:
    """Defaults of a library: a graph searched by beams, no learning, no count of distances."""

    knobs: tuple[int, ...] = BEAMS
    learn_seconds = 0.0

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """None: most libraries do not count distances."""
        return None


class _Faiss(_Peer):
    """Methods that faiss's graph indexes share."""

    metric: Metric
    index: Any

    def _add(self, data: Dataset) -> None:
        self.metric = data.metric
        with faiss_threads(1):
            self.index.add(_unit(data.base, data.metric))

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        with faiss_threads(1):
            return _ids(self.index.search(_unit(queries, self.metric), k)[1])

    def n_bytes(self) -> int | None:
        """Size of the index as faiss writes it."""
        return len(faiss.serialize_index(self.index))


class FaissHnsw(_Faiss):
    """faiss.IndexHNSWFlat; the knob is efSearch."""

    def __init__(self, degree: int = 32, ef_construction: int = 200, seed: int = 0) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        dim = data.base.shape[1]
        self.index = faiss.IndexHNSWFlat(dim, self.degree // 2, faiss_metric(data.metric))
        self.index.hnsw.efConstruction = self.ef_construction
        self.index.hnsw.rng = faiss.RandomGenerator(self.seed)
        self._add(data)

    def set(self, knob: int) -> None:
        """Set efSearch."""
        self.index.hnsw.efSearch = knob

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances by faiss's own statistics."""
        stats = faiss.cvar.hnsw_stats
        counts = []
        for query in _unit(queries, self.metric):
            stats.reset()
            self.index.search(query[None], k)
            counts.append(stats.ndis)
        return np.array(counts, dtype=np.int64)


class FaissNsg(_Faiss):
    """faiss.IndexNSGFlat; the knob is search_L."""

    def __init__(self, degree: int = 32, n_neighbors: int = 64) -> None:
        self.degree, self.n_neighbors = degree, n_neighbors

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        _refuse_ip("NSG", data.metric)
        self.index = faiss.IndexNSGFlat(data.base.shape[1], self.degree, faiss.METRIC_L2)
        self.index.GK = self.n_neighbors
        self._add(data)

    def set(self, knob: int) -> None:
        """Set search_L."""
        self.index.nsg.search_L = knob


class Hnswlib(_Peer):
    """hnswlib.Index; the knob is ef."""

    def __init__(
        self, degree: int = 32, ef_construction: int = 200, seed: int = 0, n_threads: int = 1
    ) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed
        self.n_threads = n_threads  # of build
        self._library = _imported("hnswlib")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        n, dim = data.base.shape
        self.index = self._library.Index(space=data.metric, dim=dim)
        self.index.init_index(
            n, M=self.degree // 2, ef_construction=self.ef_construction, random_seed=self.seed
        )
        self.index.add_items(data.base, num_threads=self.n_threads)
        self.index.set_num_threads(1)

    def set(self, knob: int) -> None:
        """Set ef."""
        self.index.set_ef(knob)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return _ids(self.index.knn_query(queries, k)[0])

    def n_bytes(self) -> int | None:
        """Size of the index as hnswlib writes it."""
        return _n_bytes_saved(self.index.save_index)


class Annoy(_Peer):
    """annoy.AnnoyIndex, trees of random splits; the knob is search_k."""

    knobs = tuple(100 * 2**i for i in range(12))

    def __init__(self, n_trees: int = 100, seed: int = 0) -> None:
        self.n_trees, self.seed, self.knob = n_trees, seed, -1
        self._library = _imported("annoy")

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
        """Points inspected, which Annoy returns if asked for all points; splits are not counted."""
        everything = self.index.get_n_items()
        counts = [len(self._inspect(query, everything)) for query in queries]
        return np.array(counts, dtype=np.int64)

    def n_bytes(self) -> int | None:
        """Size of the index as Annoy writes it."""
        return _n_bytes_saved(self.index.save)

    def _inspect(self, query: Vectors, n: int) -> list[int]:
        found: list[int] = self.index.get_nns_by_vector(query, n, search_k=self.knob)
        return found


class Usearch(_Peer):
    """usearch.index.Index; the knob is expansion_search."""

    def __init__(self, degree: int = 32, ef_construction: int = 200, dtype: str = "f32") -> None:
        self.degree, self.ef_construction, self.dtype = degree, ef_construction, dtype
        self._library = _imported("usearch.index")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        n, dim = data.base.shape
        self.index = self._library.Index(
            ndim=dim,
            metric=_USEARCH[data.metric],
            dtype=self.dtype,
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

    def n_bytes(self) -> int | None:
        """Size of the index as usearch writes it."""
        return int(self.index.serialized_length)


class PyNNDescent(_Peer):
    """pynndescent.NNDescent; the knob is a thousand times epsilon."""

    knobs = (0, 20, 50, 80, 120, 160, 200, 250, 300, 400)

    def __init__(self, n_neighbors: int = 30, seed: int = 0) -> None:
        self.n_neighbors, self.seed, self.epsilon = n_neighbors, seed, 0.1
        self._library = _imported("pynndescent")

    def build(self, data: Dataset) -> None:
        """Index the base vectors and compile the search."""
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

    def n_bytes(self) -> int | None:
        """None: pynndescent has no file format of its own."""
        return None


class SymphonyQG(_Peer):
    """rabitqlib.SymqgIndex, a graph whose vertices hold one-bit codes of their neighbours.

    The knob is ef.
    """

    def __init__(self, degree: int = 32, ef_construction: int = 400) -> None:
        self.degree, self.ef_construction = degree, ef_construction
        self._library = _imported("rabitqlib")

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        self.metric = data.metric
        metric = "ip" if data.metric == "ip" else "l2"
        self.index = self._library.SymqgIndex(data.base.shape[1], self.degree, metric)
        self.index.build(_unit(data.base, data.metric), self.ef_construction, num_threads=1)
        self.set(BEAMS[0])

    def set(self, knob: int) -> None:
        """Set ef."""
        self.ef = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        found = self.index.search(_unit(queries, self.metric), k, max(k, self.ef), num_threads=1)
        return _ids(found[0])

    def n_bytes(self) -> int | None:
        """Size of the index as rabitqlib writes it."""
        return _n_bytes_saved(self.index.save)


class Scann(_Peer):
    """ScaNN: clusters, four-bit codes, true distances at the end; the knob is clusters searched."""

    knobs = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 140, 200)

    def __init__(self, n_reordered: int = 100) -> None:
        self.n_reordered, self.knob = n_reordered, 1
        self._library = _imported("scann")

    def build(self, data: Dataset) -> None:
        """Index the n base vectors in √n clusters."""
        self.metric = data.metric
        n = len(data.base)
        n_clusters = round(np.sqrt(n))
        metric = "dot_product" if data.metric == "ip" else "squared_l2"
        builder = self._library.scann_ops_pybind.builder(_unit(data.base, data.metric), 10, metric)
        builder.tree(n_clusters, 1, training_sample_size=n)
        builder.score_ah(2, anisotropic_quantization_threshold=0.2)
        self.index = builder.set_n_training_threads(1).reorder(self.n_reordered).build()

    def set(self, knob: int) -> None:
        """Set the clusters searched."""
        self.knob = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        found, distances = self.index.search_batched(
            _unit(queries, self.metric),
            final_num_neighbors=k,
            pre_reorder_num_neighbors=max(k, self.n_reordered),
            leaves_to_search=self.knob,
        )
        return np.where(np.isnan(distances), -1, _ids(found))

    def n_bytes(self) -> int | None:
        """Size of the index as ScaNN writes it."""

        def save(path: str) -> None:
            Path(path).mkdir()
            self.index.serialize(path)

        return _n_bytes_saved(save)


def _imported(module: str) -> Any:
    """A library's module; if it is not installed, the error says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}; {install('bench')}") from error


def _unit(vectors: Vectors, metric: Metric) -> Vectors:
    """Unit vectors for cosine, which these libraries lack: l2 between them has the same order."""
    return normalize(vectors) if metric == "cosine" else vectors


def _n_bytes_saved(save: Callable[[str], object]) -> int:
    """Bytes that a library writes, be it a file or a directory."""
    with TemporaryDirectory() as directory:
        save(str(Path(directory) / "index"))
        return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


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
