"""Features of vertices: their vectors, means over neighbours, in-degrees."""

from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph


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
    centred, scale = _standardised(vectors)
    means = [vectors]
    for _ in range(n_hops):
        means.append(propagate(graph, means[-1]))
    steps = [_standardised(after - before)[0] for before, after in pairwise(means)]
    links = graph.neighbors[graph.neighbors >= 0]
    in_degree = np.bincount(links, minlength=graph.n_vertices)
    crowding = np.linalg.norm(means[min(1, n_hops)], axis=1)
    scalars = [_standardised(_column(s))[0] for s in (np.log1p(in_degree), crowding)]
    weighted = [_standardised(scalar * centred)[0] for scalar in scalars]
    groups = [centred, *steps, *weighted]
    pairs = combinations_with_replacement(groups[:2], 2) if with_products else ()
    products = [_standardised(one * other)[0] for one, other in pairs]
    rows = np.concatenate([*groups, *scalars, *products], axis=1)
    return VertexFeatures(rows, len(groups), len(scalars), len(products), scale)


def _column(values: NDArray[np.generic]) -> NDArray[np.float32]:
    return values.astype(np.float32)[:, None]


def _standardised(group: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    centred = group - group.mean(axis=0)
    length = float(np.sqrt((centred**2).sum(axis=1).mean()))
    return (centred / np.float32(length) if length > 0 else centred), length
