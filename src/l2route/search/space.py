"""Spaces that walks are routed in: the vectors of vertices, and what a search in them costs."""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.search.base import BASE_TYPES, BaseVectors, Scorer
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.limits import Budget

ROW_TYPES = (*BASE_TYPES, "uint8")
"""Elements of routing vectors; uint8 for codes, one or two in a byte."""
LEARNED = "learned"
"""What the name of a space that was learned begins with."""
MAX_CODED_DIMS = {4: (2**31 - 1) // (127 * 15), 8: (2**31 - 1) // (127 * 127)}
"""Dimensions of codes, by bits: the core adds up products with query codes, which are of up to 127,
in 32 bits."""


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
