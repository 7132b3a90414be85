"""Routing spaces: the vectors that guide a walk."""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.search.base import BASE_TYPES, BaseVectors, Scorer
from l2route.search.gain import Gain
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.rotation import Rotation
from l2route.search.vertex_map import FilterMap, LinearMap, Projection, VertexMap

ROW_TYPES = (*BASE_TYPES, "uint8")
"""Element types of routing vectors; uint8 holds one code, two of four bits or four of two."""
LEARNED = "learned"
"""Prefix of the names of learned spaces."""
LEAST_RERANK = 8
"""Smallest rerank of learned spaces within a budget, unless it is given."""
RERANK_PARTS, RERANK_PARTS_OF_ONE = 10, 20
"""A learned search spends this part of its budget on reranking: a tenth, or a 20th for one answer.
Recalls of a space learned for all budgets, on 6,000 queries cut from the training queries of
glove100: recall@10 at 256 is 0.508, 0.563, 0.578 and 0.572 with 10, 16, 24 and 32 reranked, at 512
0.602, 0.700, 0.765, 0.773 and 0.771 with 10, 16, 32, 51 and 64; recall@1 at 256 is 0.668, 0.673 and
0.671 with 8, 12 and 16, at 512 0.815, 0.835, 0.840 and 0.838 with 8, 16, 24 and 32."""
MAX_CODED_DIMS = {bits: (2**31 - 1) // (127 * most) for bits, most in ((2, 3), (4, 15), (8, 127))}
"""Largest dimension of codes, by bits. The core sums products of codes and query codes,
which are at most 127, in 32-bit integers."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The values that codes stand for: offset + scale · code in each dimension."""

    bits: int
    """8 for one code per byte, of which seven bits are used; 4 or 2 for two or four per byte."""
    offset: NDArray[np.float32]
    """Value of code 0 [dim]."""
    scale: NDArray[np.float32]
    """Difference between the values of two consecutive codes [dim]."""

    def __post_init__(self) -> None:
        if self.bits not in MAX_CODED_DIMS:
            raise ValueError(f"expected codes of 2, 4 or 8 bits, got {self.bits}")

    def check_dim(self, dim: int) -> None:
        """Refuse a dimension that is too large for the bits, or not that of offset and scale."""
        check_coded_dim(dim, self.bits)
        if not self.offset.shape == self.scale.shape == (dim,):
            got = f"{self.offset.shape} and {self.scale.shape}"
            raise ValueError(f"expected offset and scale [{dim}], got {got}")


@dataclass(frozen=True, slots=True)
class RoutingSpace:
    """The vectors that guide a walk: all that serving needs of a trained model.

    The original space is the plain graph search, a PCA space is the paper's compressed baseline.
    """

    rows: NDArray[Any]
    """Routing vectors of float32, float16 or codes (uint8), padded [n, padded_dim(dim)]; codes of
    four or two bits are packed two or four to a byte, so their rows are narrower."""
    dim: int
    """Dimension of the routing vectors."""
    scorer: Scorer
    """Whether a smaller l2 distance or a larger inner product is better."""
    query_matrix: NDArray[np.float32] | None = None
    """Maps a query into the space [dim, original dim]; None for the identity or a rotation."""
    bias: NDArray[np.float32] | None = None
    """Added to each vertex's inner product, or subtracted from its l2 score [n]."""
    name: str = "original"
    """Name of the space in tables and in calls such as `search(space=...)`."""
    rerank: int = 32
    """Default number of vertices to rerank, where scores are not true distances."""
    rerank_grows: bool = False
    """Whether searches with larger budgets rerank more by default; see `rerank_within`."""
    codes: Codes | None = None
    """The values of the codes in `rows`; None if they are floats."""
    centre: NDArray[np.float32] | None = None
    """Subtracted from a query after the query matrix [dim]; None for 0. Codes are centred, so that
    they are exact enough far from the origin."""
    inlined: bool = False
    """Whether a searcher keeps copies of the vectors of a vertex's neighbours side by side, so that
    memory is read in longer runs. It takes one more row per place in the neighbour lists."""
    origin: float | None = None
    """`score + origin·|q|²/2` is proportional to the squared distance, where q is the query in the
    space. None if scores are not distances; a slack is then refused."""
    is_exact: bool = False
    """Whether scores are the true distances to the original vectors, so that nothing is reranked.
    True for `original_space`."""
    model: str | None = None
    """Name of the class of the model that it was learned by; None if it was not learned."""
    gain: Gain | None = None
    """What learning brought when it was done; None if it was not learned, or not kept track of."""
    vertex_map: VertexMap | None = None
    """Maps vertices that come later into the space; None if that is not known."""
    rotation: Rotation | None = None
    """Maps a query into the space, in place of a query matrix."""

    def __post_init__(self) -> None:
        self._check_rows()
        if self.scorer not in ("l2", "ip"):
            raise ValueError(f"expected scorer l2 or ip, got {self.scorer!r}")
        if self.origin is not None and not np.isfinite(self.origin):
            raise ValueError(f"expected a finite origin or none, got {self.origin}")
        if self.rerank < 1:
            raise ValueError(f"expected rerank of at least 1, got {self.rerank}")
        if self.query_matrix is not None and self.query_matrix.shape[:1] != (self.dim,):
            raise ValueError(
                f"expected a query matrix [{self.dim}, *], got {self.query_matrix.shape}"
            )
        if self.rotation is not None:
            self._check_rotation(self.rotation)
        if self.centre is not None and self.centre.shape != (self.dim,):
            raise ValueError(f"expected a centre [{self.dim}], got {self.centre.shape}")
        if self.bias is not None and self.bias.shape != (len(self.rows),):
            raise ValueError(f"expected a bias [{len(self.rows)}], got {self.bias.shape}")
        if isinstance(self.vertex_map, FilterMap | LinearMap):
            self.vertex_map.check_dims(self.original_dim, self.dim)
        names = ("query_matrix", "rotation", "centre", "bias", "codes")
        changed = [name for name in names if getattr(self, name) is not None]
        if self.is_exact and changed:
            got = ", ".join(changed)
            expected = "an exact space without query matrix, rotation, centre, bias and codes"
            raise ValueError(f"expected {expected}, got {got}")

    def _check_rotation(self, rotation: Rotation) -> None:
        if self.query_matrix is not None:
            raise ValueError("expected a query matrix or a rotation, got both")
        if rotation.dim != self.dim:
            raise ValueError(f"expected a rotation to {self.dim} dimensions, got {rotation.dim}")

    def _check_rows(self) -> None:
        if self.dim < 1:
            raise ValueError(f"expected a routing dimension of at least 1, got {self.dim}")
        if self.rows.dtype not in ROW_TYPES:
            raise ValueError(f"expected rows of {', '.join(ROW_TYPES)}, got {self.rows.dtype}")
        if (self.rows.dtype == np.uint8) != (self.codes is not None):
            got = f"{self.rows.dtype} {'without' if self.codes is None else 'with'} codes"
            raise ValueError(f"expected uint8 with an offset and a scale or floats, got {got}")
        width = padded_dim(self.dim, self.rows.dtype)
        if self.codes is not None:
            if self.scorer != "ip":
                raise ValueError(f"expected codes scored by ip, got {self.scorer!r}")
            self.codes.check_dim(self.dim)
            width = padded_dim(self.dim, np.uint8, self.codes.bits) * self.codes.bits // 8
        n = len(self.rows)
        if self.rows.shape != (n, width):
            raise ValueError(f"expected rows [{n}, {width}], got {self.rows.shape}")

    def default_rerank(self, k: int, budget: int) -> int:
        """Number of vertices to rerank within a budget, if it is not given."""
        least = max(k, self.rerank)
        return max(least, rerank_within(budget, k)) if self.rerank_grows else least

    @property
    def n_projection(self) -> int:
        """Distance computations that mapping a query into the space costs."""
        if self.rotation is not None:
            return self.rotation.n_distances
        return 0 if self.query_matrix is None else self.dim

    @property
    def original_dim(self) -> int:
        """Dimension of queries before they are mapped into the space."""
        if self.rotation is not None:
            return self.rotation.n_in
        return self.dim if self.query_matrix is None else int(self.query_matrix.shape[1])

    def map_queries(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Queries [n, original dim] in the space [n, dim]; they are not centred."""
        if self.rotation is not None:
            return self.rotation(queries)
        return queries if self.query_matrix is None else queries @ self.query_matrix.T


def rerank_within(budget: int, k: int) -> int:
    """Default rerank of learned spaces: a tenth of the budget, or a 20th for one answer.

    Learned scores lead to the nearest neighbours, but rank them worse than distances do: the more
    vertices a walk has visited, the more have to be reranked.
    """
    return max(LEAST_RERANK, k, budget // (RERANK_PARTS_OF_ONE if k == 1 else RERANK_PARTS))


def check_coded_dim(dim: int, bits: int) -> None:
    """Refuse a dimension at which sums of products of codes would overflow 32 bits."""
    if dim > MAX_CODED_DIMS[bits]:
        most = f"{MAX_CODED_DIMS[bits]:,}"
        raise ValueError(f"expected codes of at most {most} dimensions, got {dim:,}")


def original_space(base: BaseVectors) -> RoutingSpace:
    """Routing by the original vectors: the plain graph search."""
    origins: dict[Metric, float | None] = {"l2": 0.0, "cosine": 2.0, "ip": None}
    return RoutingSpace(
        base.rows,
        base.dim,
        base.scorer,
        origin=origins[base.metric],
        is_exact=True,
        vertex_map=Projection(),
    )


def pca_space(base: BaseVectors, dim: int) -> RoutingSpace:
    """Routing by the first `dim` principal components: the paper's compressed baseline.

    Distances do not depend on the mean. Inner products do, so for them the components are those of
    the uncentred second moment, computed by adding each vector's negative to the sample. Cosine is
    l2 between unit vectors.
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
    return RoutingSpace(
        rows, dim, scorer, matrix, name=f"pca{dim}", origin=origin, vertex_map=Projection()
    )
