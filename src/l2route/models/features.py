"""Features of vertices: their vectors, means over neighbours, in-degrees."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.search.vertex_map import features_of, log_degrees


@dataclass(frozen=True, slots=True)
class VertexFeatures:
    """Features of every vertex, centred, each group of root-mean-square length 1."""

    rows: NDArray[np.float32]
    """[n, n_groups · dim + n_singles + n_products · dim]; the first group is the centred vectors,
    scaled."""
    n_groups: int
    """Groups of `dim` features each."""
    n_singles: int
    """Single features, which follow the groups."""
    n_products: int
    """Products of two groups, axis by axis, which follow the single features; for biases only."""
    vector_scale: float
    """Length of the first group before scaling: vectors = vector_scale · rows[:, :dim] + mean."""
    means: NDArray[np.float32]
    """What each feature was centred by, in the order of `features_of`."""
    lengths: NDArray[np.float32]
    """What each block of features was divided by, in the order of `features_of`."""


def propagate(graph: Graph, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean over each vertex and its neighbours, A·x [n, dim]."""
    total = vectors.copy()
    count = np.ones(len(vectors), dtype=np.float32)
    for neighbor in graph.neighbors.T:  # [n]; column by column, so that no [n, degree, dim] is made
        used = neighbor >= 0
        total[used] += vectors[neighbor[used]]
        count += used
    total /= count[:, None]
    return total


def principal_axes(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Principal axes of the vectors in columns, largest variance first [dim, dim].

    Vectors rotated to them need one weight per axis: weights between axes mostly fit noise.
    """
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)


def vertex_features(
    graph: Graph, vectors: NDArray[np.float32], n_hops: int = 2, *, with_products: bool = False
) -> VertexFeatures:
    """Features of every vertex: its vector, means over its neighbourhood, in-degree and density.

    Groups are x, A^i·x − A^(i−1)·x for i = 1…n_hops, and two scalars times x: the logarithm of the
    in-degree, and the length of A·x. The two scalars are single features as well. They let hubs and
    dense regions be scored differently.

    Args:
        graph: the graph.
        vectors: base vectors [n, dim].
        n_hops: number of propagation steps.
        with_products: whether to add x∘x, x∘(A·x − x) and (A·x − x)∘(A·x − x). In a projected space
            they estimate the part of a vertex's score that the projection cuts off and that does
            not depend on the query.
    """
    means = [vectors]
    for _ in range(n_hops):
        means.append(propagate(graph, means[-1]))
    links = graph.neighbors[graph.neighbors >= 0]
    in_degree = np.bincount(links, minlength=graph.n_vertices)
    scales = _Scales()
    groups, singles, products = features_of(
        means, log_degrees(in_degree), scales.standardise, with_products=with_products
    )
    return VertexFeatures(
        rows=np.concatenate([*groups, *singles, *products], axis=1),
        n_groups=len(groups),
        n_singles=len(singles),
        n_products=len(products),
        vector_scale=scales.lengths[0],
        means=np.concatenate(scales.means),
        lengths=np.array([length or 1.0 for length in scales.lengths], dtype=np.float32),
    )


class _Scales:
    """Standardises blocks of features, and keeps by what."""

    def __init__(self) -> None:
        self.means: list[NDArray[np.float32]] = []
        self.lengths: list[float] = []

    def standardise(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Centre a block [n, width] and scale it to a root-mean-square length of 1, or of 0."""
        mean = block.mean(axis=0)
        centred = block - mean
        length = float(np.sqrt((centred**2).sum(axis=1).mean()))
        self.means.append(mean)
        self.lengths.append(length)
        return centred if length == 0 else np.asarray(centred / np.float32(length))
