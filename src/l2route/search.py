"""Beam search under an exact budget: what it may spend, where it routes, what it answers."""

from dataclasses import dataclass, replace
from operator import index as index_of
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data import Metric, check_vectors, normalize
from l2route.graph import Graph
from l2route.memory import aligned_zeros, pad_rows, padded_dim

Scorer = Literal["l2", "ip"]
BASE_TYPES = ("float32", "float16")
"""Elements of original vectors."""
ROW_TYPES = (*BASE_TYPES, "uint8")
"""Elements of routing vectors; uint8 for codes of seven bits."""
MAX_K = 2**31 - 1
"""Answers per query that the core can count."""
WIDEST_WITH_SLACK = 2048
"""Beam of a search with a slack, at the most and by default."""
N_OWN = 10_000
"""Vectors that are scored by themselves to find a space's origin, at the most."""
MAX_THREADS = 1024
"""Threads that a search starts at the most."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Distance computations one query may spend, in units of the original dimension."""

    routing: int
    """Distances computed between the query and routing vectors while walking."""
    rerank: int = 0
    """Walked vertices whose true distance is computed at the end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "routing", index_of(self.routing))
        object.__setattr__(self, "rerank", index_of(self.rerank))
        if self.routing < 1 or self.rerank < 0:
            raise ValueError(
                f"expected routing of at least 1 and rerank of at least 0, "
                f"got {self.routing} and {self.rerank}"
            )

    @classmethod
    def of_total(
        cls, total: int, dim: int, routing_dim: int, rerank: int = 0, projected: bool | None = None
    ) -> "Budget":
        """Spend a total on rerank and projection first and on routing what is left.

        In the paper's terms rDCS = C · (DCS − k − d) with C = D/d, and DCS − k without projection.

        Args:
            total: distance computations in the original dimension (the paper's DCS).
            dim: the original dimension D.
            routing_dim: the routing dimension d.
            rerank: vertices to rerank (the paper's k).
            projected: whether the query is multiplied by a d×D matrix; by default if d ≠ D.
        """
        left = total - rerank - _projection(dim, routing_dim, projected)
        routing = left * dim // routing_dim
        if routing < 1:
            raise ValueError(
                f"expected a budget that leaves something to route with after {rerank} for rerank "
                f"and {_projection(dim, routing_dim, projected)} for the projection, got {total}"
            )
        return cls(routing, rerank)

    def cost(self, dim: int, routing_dim: int, projected: bool | None = None) -> float:
        """What spending all of it costs, in distance computations of the original dimension."""
        projection = _projection(dim, routing_dim, projected)
        return self.routing * routing_dim / dim + projection + self.rerank


def _projection(dim: int, routing_dim: int, projected: bool | None) -> int:
    is_projected = routing_dim != dim if projected is None else projected
    return routing_dim if is_projected else 0


@dataclass(frozen=True, slots=True)
class BaseVectors:
    """The original vectors, as the core wants them; for cosine they have unit length."""

    rows: NDArray[Any]
    """Padded rows of float32 or float16 [n, padded_dim(dim)]."""
    dim: int
    metric: Metric

    def __post_init__(self) -> None:
        if self.rows.dtype not in BASE_TYPES:
            raise ValueError(f"expected vectors of {', '.join(BASE_TYPES)}, got {self.rows.dtype}")
        if self.dim < 1 or self.rows.shape[1:] != (padded_dim(self.dim),):
            got = list(self.rows.shape)
            raise ValueError(f"expected vectors [*, {padded_dim(max(1, self.dim))}], got {got}")

    @classmethod
    def of(cls, vectors: object, metric: Metric) -> "BaseVectors":
        """Copy vectors [n, dim] into padded rows."""
        checked = check_vectors("vectors", vectors)
        unit = normalize(checked) if metric == "cosine" else checked
        return cls(pad_rows(unit), checked.shape[1], metric)

    @property
    def scorer(self) -> Scorer:
        """How the core ranks by this metric."""
        return "l2" if self.metric == "l2" else "ip"

    def vectors(self) -> NDArray[np.float32]:
        """The vectors without their padding [n, dim]; a view, unless they are half floats."""
        return self.rows[:, : self.dim].astype(np.float32, copy=False)

    def distances(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Distances in the metric's convention from the core's scores."""
        return scores + np.float32(1) if self.metric == "cosine" else scores


@dataclass(frozen=True, slots=True)
class RoutingSpace:
    """What a walk is steered by; all that crosses from learning to serving.

    The identity space is the plain graph, a PCA space is the paper's compressed baseline.
    """

    rows: NDArray[Any]
    """Routing vectors of float32, float16 or 7-bit codes (uint8), padded [n, padded_dim(dim)]."""
    dim: int
    """Dimension of the routing vectors."""
    scorer: Scorer
    """Vertices nearer by l2, or larger by inner product, are expanded first."""
    query_matrix: NDArray[np.float32] | None = None
    """Maps a query into the space [dim, original dim]; None for the identity."""
    bias: NDArray[np.float32] | None = None
    """Added to each vertex's inner product (or taken from its l2 score) [n]."""
    name: str = "original"
    """What tables call it."""
    rerank: int = 32
    """Vertices reranked by default, where routing scores are not true distances."""
    code_bits: int = 8
    """Of codes: 8 for one in a byte, of which seven are used, 4 for two in a byte."""
    lowest: NDArray[np.float32] | None = None
    """What the code 0 stands for in each dimension [dim]; of codes only."""
    steps: NDArray[np.float32] | None = None
    """What a code counts in each dimension [dim]; of codes only."""
    inlined: bool = False
    """Whether every vertex has a copy of its neighbours' vectors beside each other while it is
    searched: as many more bytes as there are neighbours, for fewer places in memory to go to."""
    origin: float | None = None
    """A score and so many halves of the square of a query in the space are about half a squared
    distance, on whatever scale; 0 where scores are squared distances, None where they are none."""

    def __post_init__(self) -> None:
        n = len(self.rows)
        if self.dim < 1:
            raise ValueError(f"expected a routing dimension of at least 1, got {self.dim}")
        if self.rows.dtype not in ROW_TYPES:
            raise ValueError(f"expected rows of {', '.join(ROW_TYPES)}, got {self.rows.dtype}")
        is_coded = self.rows.dtype == np.uint8
        if self.code_bits not in (4, 8):
            raise ValueError(f"expected codes of 4 or 8 bits, got {self.code_bits}")
        width = padded_dim(self.dim, self.rows.dtype, self.code_bits)
        width = width * self.code_bits // 8 if is_coded else width
        if self.rows.shape != (n, width):
            raise ValueError(f"expected rows [{n}, {width}], got {self.rows.shape}")
        scale = [each for each in (self.lowest, self.steps) if each is not None]
        if len(scale) != 2 * is_coded or (is_coded and self.scorer != "ip"):
            raise ValueError("expected scorer ip, lowest and steps for codes, and for codes alone")
        if any(each.shape != (self.dim,) for each in scale):
            got = ", ".join(str(each.shape) for each in scale)
            raise ValueError(f"expected lowest and steps [{self.dim}], got {got}")
        if self.origin is not None and not np.isfinite(self.origin):
            raise ValueError(f"expected a finite origin or none, got {self.origin}")
        if self.rerank < 1:
            raise ValueError(f"expected rerank of at least 1, got {self.rerank}")
        if self.scorer not in ("l2", "ip"):
            raise ValueError(f"expected scorer l2 or ip, got {self.scorer!r}")
        if self.query_matrix is not None and self.query_matrix.shape[:1] != (self.dim,):
            raise ValueError(
                f"expected a query matrix [{self.dim}, *], got {self.query_matrix.shape}"
            )
        if self.bias is not None and self.bias.shape != (n,):
            raise ValueError(f"expected a bias [{n}], got {self.bias.shape}")

    @property
    def n_projection(self) -> int:
        """Distance computations that mapping a query into the space costs."""
        return 0 if self.query_matrix is None else self.dim

    def budget(self, total: int, dim: int, rerank: int) -> Budget:
        """What a total buys in this space, for queries of the original dimension `dim`."""
        return Budget.of_total(total, dim, self.dim, rerank, self.query_matrix is not None)


def original_space(base: BaseVectors) -> RoutingSpace:
    """Routing by the original vectors: the plain graph search."""
    origins: dict[Metric, float | None] = {"l2": 0.0, "cosine": 2.0, "ip": None}
    return RoutingSpace(base.rows, base.dim, base.scorer, origin=origins[base.metric])


def pca_space(base: BaseVectors, dim: int) -> RoutingSpace:
    """Routing by the first `dim` principal components: the paper's compressed baseline.

    Distances do not see the mean. Inner products do, so for them the components are those of
    the second moment about zero, which is what centring the vectors with their mirror images does.
    Cosine is l2 between unit vectors.
    """
    scorer: Scorer = "ip" if base.metric == "ip" else "l2"
    if not 1 <= dim < base.dim:
        raise ValueError(f"expected a PCA dimension in [1, {base.dim}), got {dim}")
    vectors = np.ascontiguousarray(base.vectors())
    if len(vectors) < base.dim:
        raise ValueError(f"expected at least {base.dim} vectors for PCA, got {len(vectors)}")
    transform = faiss.PCAMatrix(base.dim, dim)
    transform.train(vectors if scorer == "l2" else np.concatenate([vectors, -vectors]))
    matrix = faiss.vector_to_array(transform.A).reshape(dim, base.dim)
    rows = pad_rows(vectors @ matrix.T)
    origin = 0.0 if scorer == "l2" else None
    return RoutingSpace(rows, dim, scorer, matrix, name=f"pca{dim}", origin=origin)


def with_origin(space: RoutingSpace, base: BaseVectors) -> RoutingSpace:
    """A space of inner products with the origin that makes vectors' own distances zero, on average.

    Without one where the metric is no distance.
    """
    if base.metric == "ip" or space.scorer != "ip" or space.rows.dtype != np.float32:
        return replace(space, origin=None)
    every = -(-len(base.rows) // N_OWN)
    vectors = base.vectors()[::every]
    matrix = space.query_matrix
    queries = vectors if matrix is None else vectors @ matrix.T  # [n, dim]
    own = np.einsum("nd,nd->n", space.rows[::every, : space.dim], queries)
    if space.bias is not None:
        own = own + space.bias[::every]
    halves = 0.5 * np.einsum("nd,nd->n", queries, queries)
    total = float(halves.mean())
    return replace(space, origin=float(own.mean()) / total if total > 0 else None)


def _inlined(graph: Graph, space: RoutingSpace) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Routing vectors and biases of all neighbours, list by list; any where there is none."""
    ids = np.maximum(graph.neighbors.ravel(), 0)
    near = aligned_zeros((len(ids), space.rows.shape[1]), space.rows.dtype.type)
    np.take(space.rows, ids, axis=0, out=near)
    return near, None if space.bias is None else space.bias[ids]


def _padded_scale(values: NDArray[np.float32] | None, code_bits: int) -> NDArray[np.float32] | None:
    if values is None:
        return None
    padded = np.zeros(padded_dim(len(values), np.uint8, code_bits), dtype=np.float32)
    padded[: len(values)] = values
    return padded


@dataclass(frozen=True, slots=True)
class Trace:
    """Vertices in the order visited; query i's are those in [offsets[i], offsets[i + 1])."""

    offsets: NDArray[np.int64]
    vertices: NDArray[np.int32]
    hops: NDArray[np.int32]
    """Hop in which each vertex was visited; 0 for entry vertices."""

    def of(self, query: int) -> NDArray[np.int32]:
        """Vertices that one query visited, in order."""
        return self.vertices[self.offsets[query] : self.offsets[query + 1]]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Answers to a batch of queries, nearest first, ties by id, and what they cost."""

    ids: NDArray[np.int64]
    """[n_queries, k]; −1 where fewer than k were found."""
    distances: NDArray[np.float32]
    """[n_queries, k]; inf where fewer than k were found."""
    n_computed: NDArray[np.float64]
    """Distance computations in units of the original dimension, all counted [n_queries]."""
    n_routing: NDArray[np.int32]
    """Routing vectors scored [n_queries]."""
    n_projection: int
    """Distance computations that mapping a query into the routing space costs."""
    n_rerank: NDArray[np.int32]
    """True distances computed at the end [n_queries]."""
    n_hops: NDArray[np.int32]
    """Vertices expanded, those of upper layers included [n_queries]."""
    trace: Trace | None = None


class Searcher:
    """Searches one graph in one routing space; any number of threads may share it.

    Args:
        graph: the graph to walk.
        space: what steers the walk.
        base: original vectors; answers are reranked by them where routing scores are not true.
        simd: kernel to use, of `l2route._core.simd_levels()`.
    """

    def __init__(
        self, graph: Graph, space: RoutingSpace, base: BaseVectors, simd: str = "auto"
    ) -> None:
        if not graph.n_vertices == len(space.rows) == len(base.rows):
            raise ValueError(
                f"expected as many routing vectors and vectors as vertices, "
                f"got {len(space.rows)}, {len(base.rows)} and {graph.n_vertices}"
            )
        matrix = space.query_matrix
        if matrix is not None and matrix.shape[1] != base.dim:
            raise ValueError(f"expected a query matrix [*, {base.dim}], got {matrix.shape}")
        if matrix is None and space.dim != base.dim:
            raise ValueError(f"expected a query matrix from {base.dim} to {space.dim} dimensions")
        self.graph, self.space, self.base = graph, space, base
        self.reranks = space.rows is not base.rows or space.bias is not None
        near, near_bias = _inlined(graph, space) if space.inlined else (None, None)
        self.n_inlined_bytes = sum(each.nbytes for each in (near, near_bias) if each is not None)
        self._core = _core.Searcher(
            neighbors=graph.neighbors,
            entries=graph.entries,
            upper=[(layer.vertices, layer.neighbors) for layer in graph.upper],
            routing=space.rows,
            routing_dim=space.dim,
            scorer=space.scorer,
            bias=space.bias,
            code_bits=space.code_bits,
            lowest=_padded_scale(space.lowest, space.code_bits),
            steps=_padded_scale(space.steps, space.code_bits),
            origin=space.origin or 0.0,
            near=near,
            near_bias=near_bias,
            query_matrix=None if matrix is None else pad_rows(matrix),
            original=base.rows if self.reranks else None,
            dim=base.dim,
            metric_scorer=base.scorer,
            simd=simd,
        )

    def search(
        self,
        queries: object,
        k: int = 10,
        budget: Budget | None = None,
        ef: int | None = None,
        n_threads: int = 0,
        trace: bool = False,
        rerank: int | None = None,
        slack: float | None = None,
    ) -> SearchResult:
        """Answer queries within a budget, a beam width, a slack, or several of them.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query.
            budget: distance computations per query, never exceeded; None for no limit.
            ef: beam width: the walk ends when the ef best visited are expanded; at least k and
                the vertices to rerank are kept whatever it is. None for no limit.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited.
            rerank: true distances at the end of a search without a budget; all of the beam by
                default, or with a slack twice as many as answers. A budget says its own.
            slack: the walk ends when what it could expand is farther than 1 + slack times the
                k-th best: queries with many near ones take longer than others. None for no limit.
        """
        k, n_threads = index_of(k), index_of(n_threads)
        ef = None if ef is None else index_of(ef)
        rows = self._check(queries, k, budget, ef, n_threads, slack)
        if slack is not None and ef is None:
            ef = WIDEST_WITH_SLACK
        n = self.graph.n_vertices + 1  # a limit beyond it limits nothing
        call = self._core.trace if trace else self._core.search
        found = call(
            queries=rows,
            k=k,
            routing=n - 1 if budget is None else min(n, budget.routing),
            beam=min(n, ef or 0),
            rerank=min(n, self._n_rerank(k, budget, ef, rerank, slack)),
            slack=-1.0 if slack is None else slack,
            n_threads=min(n_threads, MAX_THREADS),
        )
        ids, scores, n_routing, n_rerank, n_hops = found[:5]
        n_projection = self.space.n_projection
        share = np.float64(self.space.dim / self.base.dim)
        return SearchResult(
            ids=ids,
            distances=self.base.distances(scores),
            n_computed=n_routing * share + (n_projection + n_rerank),
            n_routing=n_routing,
            n_projection=n_projection,
            n_rerank=n_rerank,
            n_hops=n_hops,
            trace=Trace(*found[5:]) if trace else None,
        )

    def _n_rerank(
        self,
        k: int,
        budget: Budget | None,
        ef: int | None,
        rerank: int | None,
        slack: float | None,
    ) -> int:
        if not self.reranks:
            return 0
        if budget is not None:
            return budget.rerank
        if rerank is not None and rerank < 1:
            raise ValueError(f"expected rerank of at least 1, got {rerank}")
        if rerank is not None:
            return index_of(rerank)
        return 2 * k if slack is not None else max(k, ef or 0)

    def _check(
        self,
        queries: object,
        k: int,
        budget: Budget | None,
        ef: int | None,
        n_threads: int,
        slack: float | None,
    ) -> NDArray[np.float32]:
        if k < 1:
            raise ValueError(f"expected k of at least 1, got {k}")
        if k > MAX_K:
            raise ValueError(f"expected k of at most {MAX_K}, got {k}")
        if budget is None and ef is None and slack is None:
            raise ValueError("expected a budget, an ef, a slack or several, got none")
        self._check_slack(slack, ef)
        if ef is not None and ef < 1:
            raise ValueError(f"expected ef of at least 1, got {ef}")
        if n_threads < 0:
            raise ValueError(f"expected n_threads of at least 0, got {n_threads}")
        if self.reranks and budget is not None and budget.rerank < 1:
            raise ValueError(
                "expected a budget with rerank of at least 1, since routing scores are not "
                f"true distances in space {self.space.name!r}, got 0"
            )
        given = np.asarray(queries)
        rows = check_vectors("queries", given[None] if given.ndim == 1 else given, self.base.dim)
        return normalize(rows) if self.base.metric == "cosine" else rows

    def _check_slack(self, slack: float | None, ef: int | None) -> None:
        if slack is None:
            return
        if not 0 <= slack < np.inf:
            raise ValueError(f"expected a slack of at least 0, got {slack}")
        if self.space.origin is None:
            raise ValueError(
                f"expected a space whose scores are distances for a slack, got {self.space.name!r}"
            )
        if ef is not None and ef > WIDEST_WITH_SLACK:
            raise ValueError(f"expected ef of at most {WIDEST_WITH_SLACK} with a slack, got {ef}")
