"""Spaces that walks are routed in: the vectors of vertices, and what a search in them costs."""

from dataclasses import dataclass, replace
from operator import index as index_of
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.truth import exact_distances
from l2route.data.vectors import Metric, check_lengths, check_vectors, normalize
from l2route.files.memory import aligned
from l2route.search.layout import pad_rows, padded_dim

Scorer = Literal["l2", "ip"]
BASE_TYPES = ("float32", "float16")
"""Elements of original vectors."""
ROW_TYPES = (*BASE_TYPES, "uint8")
"""Elements of routing vectors; uint8 for codes, one or two in a byte."""
LEARNED = "learned"
"""What the name of a space that was learned begins with."""
MAX_CODED_DIMS = {4: (2**31 - 1) // (127 * 15), 8: (2**31 - 1) // (127 * 127)}
"""Dimensions of codes, by bits: the core adds up products with query codes, which are of up to 127,
in 32 bits."""
N_OWN = 10_000
"""Vectors that are scored by themselves to find a space's origin, at the most."""


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
        return float(spent(self.routing, self.rerank, projection, routing_dim, dim))


def spent(routing: Any, rerank: Any, projection: int, routing_dim: int, dim: int) -> Any:
    """Distance computations in units of the original dimension, of numbers or of arrays.

    Args:
        routing: routing vectors scored.
        rerank: true distances.
        projection: what mapping a query into the space costs.
        routing_dim: the routing dimension.
        dim: the original dimension.
    """
    return routing * np.float64(routing_dim) / dim + (projection + rerank)


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
        if metric == "cosine":
            return cls(pad_rows(normalize(checked)), checked.shape[1], metric)
        check_lengths("vectors", checked)
        return cls(pad_rows(checked), checked.shape[1], metric)

    @property
    def scorer(self) -> Scorer:
        """How the core ranks by this metric."""
        return "l2" if self.metric == "l2" else "ip"

    def vectors(self) -> NDArray[np.float32]:
        """The vectors without their padding [n, dim]; a view, unless they are half floats."""
        return self.rows[:, : self.dim].astype(np.float32, copy=False)

    def exact_distances(
        self, queries: NDArray[np.float32], ids: NDArray[np.integer[Any]]
    ) -> NDArray[np.float32]:
        """Distances of the vectors with these row numbers [n_queries, k]; inf for −1.

        In double precision, and under cosine from vectors of unit length, which half floats only
        nearly have: what answers are judged by.
        """
        named, places = np.unique(ids, return_inverse=True)
        vectors = self.rows[named, : self.dim].astype(np.float32, copy=False)
        distances = exact_distances(vectors, queries, places.reshape(ids.shape), self.metric)
        distances[ids < 0] = np.inf
        return distances


@dataclass(frozen=True, slots=True)
class RoutingSpace:
    """What a walk is steered by; all that crosses from learning to serving.

    The identity space is the plain graph, a PCA space is the paper's compressed baseline.
    """

    rows: NDArray[Any]
    """Routing vectors of float32, float16 or codes (uint8), padded [n, padded_dim(dim)]; of codes
    of four bits, two in a byte, half as wide."""
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
        if is_coded:
            check_coded_dim(self.dim, self.code_bits)
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


def check_coded_dim(dim: int, code_bits: int) -> None:
    """Refuse codes of so many dimensions that scores would overflow."""
    if dim > MAX_CODED_DIMS[code_bits]:
        most = f"{MAX_CODED_DIMS[code_bits]:,}"
        raise ValueError(f"expected codes of at most {most} dimensions, got {dim:,}")


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
    """A space of inner products that tells distances: vectors have none to themselves.

    What all vertices have in common does not change their ranks, so that learning leaves it open: a
    vector in all rows, a number in all biases. Both are chosen here, with the origin, by least
    squares. Without an origin where the metric, or what was learned, is no distance.

    Rows that are a multiple of the vectors need nothing but that multiple, so the fit starts there
    and is drawn to it: where vectors hardly differ, along an axis or in length, they say nothing,
    and what fits their noise best may be of any size. Such a number in rows or biases would leave
    float32 no digits for the scores.
    """
    if base.metric == "ip" or space.scorer != "ip" or space.rows.dtype != np.float32:
        return replace(space, origin=None)
    every = -(-len(base.rows) // N_OWN)
    vectors, matrix = base.vectors()[::every], space.query_matrix
    queries = (vectors if matrix is None else vectors @ matrix.T).astype(np.float64)  # [n, dim]
    if not queries.any():
        return replace(space, origin=None)
    mean, row_mean = queries.mean(axis=0), space.rows[::every, : space.dim].mean(axis=0, dtype="f8")
    bias = np.zeros(len(base.rows), dtype=np.float32) if space.bias is None else space.bias
    rows = space.rows[::every, : space.dim] - row_mean  # [n, dim]
    own = np.einsum("nd,nd->n", rows, queries) + bias[::every]  # [n]
    origin, tilt, constant = _origin_of(rows, queries - mean, own)
    if origin <= 0:  # rows do not point where vectors do
        return replace(space, origin=None)
    moved = space.rows.copy()
    moved[:, : space.dim] += np.float32(tilt + origin * mean - row_mean)
    constant -= tilt @ mean + 0.5 * origin * mean @ mean
    return replace(
        space, rows=aligned(moved), bias=bias + np.float32(constant), origin=float(origin)
    )


def _origin_of(
    rows: NDArray[np.float64], centred: NDArray[np.float64], own: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], float]:
    """Origin, tilt t and constant c of own = origin · |z|²/2 − ⟨t, z⟩ − c, by least squares.

    Ridge regression about origin = ⟨rows, z⟩ / |z|² and no tilt. Its penalty is the variance of
    what is to be explained, in units in which an origin and a tilt of the rows' own size are 1:
    what vectors tell clearly is taken from them, and what they do not tell stays below that size.

    Args:
        rows: routing vectors without their mean [n, dim].
        centred: queries z, the vectors in the space without their mean [n, dim].
        own: scores of the vectors by themselves [n].
    """
    squares = np.einsum("nd,nd->n", centred, centred)
    if not squares.any():
        return 1.0, np.zeros(centred.shape[1]), float(-own.mean())  # all alike: any scale will do
    start = np.einsum("nd,nd->", rows, centred) / squares.sum()
    size = np.sqrt(np.einsum("nd,nd->", rows, rows) / squares.sum())  # at least |start|
    left = own - 0.5 * start * squares
    unknown = size * np.column_stack([0.5 * squares, -centred.std(axis=0).max() * centred])
    about = unknown - unknown.mean(axis=0)  # [n, dim + 1]
    penalty = left.var() * np.eye(about.shape[1])
    found = np.linalg.lstsq(about.T @ about + penalty, about.T @ (left - left.mean()))[0]
    constant = unknown.mean(axis=0) @ found - left.mean()
    tilt = size * centred.std(axis=0).max() * found[1:]
    return float(start + size * found[0]), tilt, float(constant)
