"""Maps of vertices into a routing space, for vertices that come after it was made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.base import BaseVectors
from l2route.search.surroundings import neighborhood_means

Block = NDArray[np.float32]
"""Features of one kind [n, width]."""
N_SINGLES = 2
"""Single features: in-degree and density."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Vertices are mapped as queries are: by the query matrix, or not at all."""

    def rotated(self, rotation: NDArray[np.float32]) -> "Projection":
        """The map into a rotated space, whose query matrix is rotated as well."""
        del rotation
        return self


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """Vertices have a matrix of their own: f(v) = R·(x − c) + shift.

    The bias is ⟨tilt, x − c⟩ − lengthwise·½|x − c|² + constant.
    """

    matrix: NDArray[np.float32]
    """R [dim, D]"""
    centre: NDArray[np.float32]
    """c, the mean of the vectors that the map was made for [D]."""
    shift: NDArray[np.float32]
    """Added to every routing vector [dim]."""
    tilt: NDArray[np.float32]
    """[D]"""
    lengthwise: float
    """1 where scores stand for distances, 0 for inner products."""
    constant: float
    """Added to every bias."""

    def __post_init__(self) -> None:
        dim, original_dim = len(self.shift), len(self.centre)
        expected = {"matrix": (dim, original_dim), "shift": (dim,), "tilt": (original_dim,)}
        for name, shape in expected.items():
            got = getattr(self, name).shape
            if got != shape:
                raise ValueError(f"expected {name} of a linear map {list(shape)}, got {list(got)}")

    def check_dims(self, original_dim: int, dim: int) -> None:
        """Refuse a space of other dimensions."""
        if self.matrix.shape != (dim, original_dim):
            got = list(self.matrix.shape[::-1])
            raise ValueError(f"expected a map of {[original_dim, dim]}, got {got}")

    def rotated(self, rotation: NDArray[np.float32]) -> "LinearMap":
        """The map followed by a rotation [n_out, dim]."""
        return replace(self, matrix=rotation @ self.matrix, shift=rotation @ self.shift)

    def moved(self, shift: NDArray[np.float32], constant: float) -> "LinearMap":
        """The map with a vector [dim] added to all routing vectors, a number to all biases."""
        return replace(self, shift=self.shift + shift, constant=self.constant + constant)

    def __call__(
        self, vectors: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Routing vectors [m, dim] and biases [m] of vectors [m, D]."""
        centred: NDArray[np.float32] = vectors.astype(np.float32, copy=False) - self.centre
        halves = 0.5 * np.einsum("nd,nd->n", centred, centred, dtype=np.float64)
        bias = centred @ self.tilt - self.lengthwise * halves + self.constant
        rows: NDArray[np.float32] = centred @ self.matrix.T + self.shift
        return rows, bias.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class FilterMap:
    """What a filter has learned, for any vertex: see `l2route.models.graph_filter.GraphFilter`.

    f(v) = (Σ weights_k∘φ_k(v) + Σ s_j(v)·singles_j)·out + shift, where φ_k and s_j are features of
    the vertex, its neighbours and their neighbours, standardised as those that were learned from.
    Hubs have learned a shift of their own besides; they are known by their vectors, which they keep
    wherever they are moved.
    """

    axes: NDArray[np.float32]
    """Maps vectors to their scaled principal coordinates r [D, D]."""
    means: NDArray[np.float32]
    """Mean of each feature before it was standardised, in the order of `features_of`."""
    lengths: NDArray[np.float32]
    """Root-mean-square length of each block of features before it was standardised."""
    weights: NDArray[np.float32]
    """Weights of the groups of features by axis [n_groups, D]."""
    singles: NDArray[np.float32]
    """Weight vectors of the single features [2, D]."""
    out: NDArray[np.float32]
    """Maps weighted features into the space [D, dim]."""
    shift: NDArray[np.float32]
    """Added to every routing vector [dim]."""
    bias: NDArray[np.float32]
    """Weights of all features in the bias [n_features]."""
    lengthwise: NDArray[np.float32] | None
    """Matrix B [d, D], or its diagonal [D], by which the bias has −½|B·r|²; None without it."""
    constant: float
    """Added to every bias."""
    hubs: NDArray[np.float32]
    """Vectors of hubs [h, D]; any vertex with the same vector as half floats is taken for one."""
    hub_shifts: NDArray[np.float32]
    """Added to the routing vectors of hubs and, the last column, to their biases [h, dim + 1]."""
    _hub_of: dict[bytes, int] = field(init=False, repr=False)
    """Number of each hub by the bytes of its vector."""

    def __post_init__(self) -> None:
        n, groups = len(self.axes), len(self.weights)
        n_products = 0 if len(self.bias) == groups * n + N_SINGLES else 3
        n_features = (groups + n_products) * n + N_SINGLES
        expected = {
            "axes": (n, n),
            "means": (n_features,),
            "lengths": (groups + N_SINGLES + n_products,),
            "weights": (max(3, groups), n),
            "singles": (N_SINGLES, n),
            "out": (n, len(self.shift)),
            "shift": self.shift.shape[:1],
            "bias": (n_features,),
            "hubs": (len(self.hubs), n),
            "hub_shifts": (len(self.hubs), len(self.shift) + 1),
        }
        for name, shape in expected.items():
            got = getattr(self, name).shape
            if got != shape:
                raise ValueError(f"expected {name} of a filter {list(shape)}, got {list(got)}")
        lengthwise = self.lengthwise
        if lengthwise is not None and (lengthwise.ndim > 2 or lengthwise.shape[-1:] != (n,)):
            got = list(lengthwise.shape)
            raise ValueError(f"expected lengthwise of a filter [{n}] or [*, {n}], got {got}")
        hub_of = {key: hub for hub, key in enumerate(_keys(self.hubs))}
        object.__setattr__(self, "_hub_of", hub_of)

    def check_dims(self, original_dim: int, dim: int) -> None:
        """Refuse a space of other dimensions."""
        if self.out.shape != (original_dim, dim):
            expected, got = [original_dim, dim], list(self.out.shape)
            raise ValueError(f"expected a filter that maps {expected}, got {got}")

    @property
    def n_hops(self) -> int:
        """Number of means over means among the features."""
        return len(self.weights) - 1 - N_SINGLES

    def rotated(self, rotation: NDArray[np.float32]) -> "FilterMap":
        """The map followed by a rotation [n_out, dim]."""
        shifts = np.column_stack([self.hub_shifts[:, :-1] @ rotation.T, self.hub_shifts[:, -1]])
        return replace(
            self, out=self.out @ rotation.T, shift=rotation @ self.shift, hub_shifts=shifts
        )

    def moved(self, shift: NDArray[np.float32], constant: float) -> "FilterMap":
        """The map with a vector [dim] added to all routing vectors, a number to all biases."""
        return replace(self, shift=self.shift + shift, constant=self.constant + constant)

    def with_hubs(self, vectors: NDArray[np.float32], shifts: NDArray[np.float32]) -> "FilterMap":
        """The map with shifts [h, dim + 1] of the vertices with these vectors [h, D]."""
        return replace(self, hubs=vectors, hub_shifts=shifts)

    @property
    def _degree_at(self) -> int:
        """Place of the in-degree in `means`: after the vectors and the steps."""
        return (self.n_hops + 1) * len(self.axes)

    def __call__(
        self,
        base: BaseVectors,
        lists: NDArray[np.int32],
        slots: NDArray[np.integer[Any]],
        in_degrees: NDArray[Any] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Routing vectors [m, dim] and biases [m] of vertices; see `encode_vertices`."""
        means = neighborhood_means(base, lists, slots, self.n_hops)
        rotated = np.split(np.concatenate(means) @ self.axes, len(means))
        if in_degrees is None:
            degree = np.full((len(slots), 1), self.means[self._degree_at])
        else:
            degree = log_degrees(in_degrees)
        has_products = len(self.lengths) > len(self.weights) + N_SINGLES
        groups, singles, products = features_of(
            rotated, degree, self._standardise(), with_products=has_products
        )
        weighted = sum(g * w for g, w in zip(groups, self.weights, strict=True))
        weighted = weighted + np.concatenate(singles, axis=1) @ self.singles
        bias = np.concatenate([*groups, *singles, *products], axis=1) @ self.bias
        rows, bias = weighted @ self.out + self.shift, bias + self._lengthwise(rotated[0])
        self._shift_hubs(means[0], rows, bias)
        return rows, bias

    def _shift_hubs(
        self, vectors: Block, rows: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> None:
        """Add the shifts of hubs among vectors [m, D] to routing vectors [m, dim], biases [m]."""
        hubs = np.array([self._hub_of.get(key, -1) for key in _keys(vectors)], dtype=np.int64)
        at = np.flatnonzero(hubs >= 0)
        if len(at):
            rows[at] += self.hub_shifts[hubs[at], :-1]
            bias[at] += self.hub_shifts[hubs[at], -1]

    def _lengthwise(self, rotated: Block) -> NDArray[np.float32]:
        """Part of the biases that does not depend on neighbours [m]."""
        if self.lengthwise is None:
            return np.full(len(rotated), self.constant, dtype=np.float32)
        by = self.lengthwise
        mapped = rotated * by if by.ndim == 1 else rotated @ by.T
        halves = 0.5 * np.einsum("nd,nd->n", mapped, mapped, dtype=np.float64)
        return np.asarray(self.constant - halves, dtype=np.float32)

    def _standardise(self) -> Callable[[Block], Block]:
        """A function that standardises one block after another."""
        begin, n_done = 0, 0

        def standardise(block: Block) -> Block:
            nonlocal begin, n_done
            mean, length = self.means[begin : begin + block.shape[1]], self.lengths[n_done]
            begin, n_done = begin + block.shape[1], n_done + 1
            return np.asarray((block - mean) / length)

        return standardise


VertexMap = Projection | LinearMap | FilterMap


def _keys(vectors: NDArray[np.floating[Any]]) -> list[bytes]:
    """The bytes of vectors as half floats, which are the same if the index rounds them to those."""
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(vectors, dtype=np.float16)
    return [half.tobytes() for half in halves]


def log_degrees(in_degrees: NDArray[Any]) -> Block:
    """Logarithms of in-degrees, plus 1 [n, 1]."""
    logarithms: NDArray[np.float64] = np.log1p(in_degrees)
    return logarithms.astype(np.float32)[:, None]


def features_of(
    means: Sequence[Block],
    log_degree: Block,
    standardise: Callable[[Block], Block],
    *,
    with_products: bool,
) -> tuple[list[Block], list[Block], list[Block]]:
    """Groups of features, single features and products, each block standardised.

    Args:
        means: vectors and their means over neighbourhoods, A^i·x for i = 0, 1, … [n, dim].
        log_degree: logarithms of in-degrees [n, 1].
        standardise: centres and scales a block; called once for each, always in the same order.
        with_products: whether to add products of the first two groups, axis by axis.
    """
    centred = standardise(means[0])
    steps = [standardise(after - before) for before, after in pairwise(means)]
    crowding = np.linalg.norm(means[min(1, len(means) - 1)], axis=1, keepdims=True)
    singles = [standardise(log_degree), standardise(crowding)]
    groups = [centred, *steps, *(standardise(single * centred) for single in singles)]
    pairs = combinations_with_replacement(groups[:2], 2) if with_products else ()
    return groups, singles, [standardise(one * other) for one, other in pairs]
