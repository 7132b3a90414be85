"""Networks that compute all vertex vectors: the paper's two, and a filter with a hidden layer."""

from abc import ABC, abstractmethod
from operator import index as index_of

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from l2route.models.start import Start


class CorrectingNetwork(nn.Module, ABC):
    """A network whose output is added to the plain vectors and biases; see `CorrectedSpace`."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.space = CorrectedSpace(start)

    @abstractmethod
    def correction(self) -> Tensor:
        """Corrections of vectors, and in the last column of biases [n, d + 1]."""

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Routing vectors [n, d] and biases [n] of all vertices."""
        return self.space.vertices(self.correction())

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, D] into the routing space [batch, d]."""
        return self.space.queries(queries)


class GraphNetwork(CorrectingNetwork):
    """The paper's architecture (section 3): graph convolutions, then a feed-forward network.

    As in the authors' code the blocks pass on vectors as wide as the base vectors, so that the
    residual connection fits; `n_filters` is the width between the two maps of a block. The output
    is a correction of the base vectors that starts at zero.

    Args:
        start: what the untrained network ranks by.
        neighbors: padded adjacency int32 [n, width]; −1 where there is no neighbour.
        n_filters: width of the graph convolutions.
        n_blocks: number of blocks, each with one convolution.
        hidden_dim: width of the feed-forward network (4096 in the paper, 1024 in its code).
    """

    def __init__(
        self,
        start: Start,
        neighbors: NDArray[np.int32],
        *,
        n_filters: int = 256,
        n_blocks: int = 3,
        hidden_dim: int = 1024,
    ) -> None:
        super().__init__(start)
        _check_neighbors(neighbors, len(start.vectors))
        _check_sizes(n_filters=n_filters, n_blocks=n_blocks, hidden_dim=hidden_dim)
        n_features = start.vectors.shape[1]
        generator = start.generator()
        self.mean = NeighborhoodMean(neighbors)
        self.blocks = nn.ModuleList(
            ConvolutionBlock(n_features, n_filters, generator) for _ in range(n_blocks)
        )
        self.network = _feed_forward(n_features, hidden_dim, start.dim + 1, generator)
        self.features: Tensor
        self.smoothed: Tensor
        features = standardize(start.vectors)  # [n, D]
        self.register_buffer("features", features, persistent=False)
        # The input of the first convolution is constant: its mean is computed once.
        self.register_buffer("smoothed", self.mean(features), persistent=False)  # [n, D]

    def correction(self) -> Tensor:
        """Corrections of vectors, and in the last column of biases [n, d + 1]."""
        hidden, smoothed = self.features, self.smoothed  # [n, D]
        for i, block in enumerate(self.blocks):
            hidden = block(hidden, smoothed if i == 0 else self.mean(hidden))  # [n, D]
        changes: Tensor = self.network(hidden)
        return changes


class FeedForward(CorrectingNetwork):
    """The paper's ablation without graph convolutions: two layers on the base vectors alone.

    Args:
        start: what the untrained network ranks by.
        hidden_dim: width of the hidden layer.
    """

    def __init__(self, start: Start, *, hidden_dim: int = 1024) -> None:
        super().__init__(start)
        _check_sizes(hidden_dim=hidden_dim)
        generator = start.generator()
        self.network = _feed_forward(start.vectors.shape[1], hidden_dim, start.dim + 1, generator)
        self.features: Tensor
        features = standardize(start.vectors)  # [n, D]
        self.register_buffer("features", features, persistent=False)

    def correction(self) -> Tensor:
        """Corrections of vectors, and in the last column of biases [n, d + 1]."""
        changes: Tensor = self.network(self.features)
        return changes


class FilterNetwork(CorrectingNetwork):
    """The filter with a hidden layer: a linear map of the features plus a two-layer network.

    Args:
        start: what the untrained network ranks by.
        features: features of every vertex (see l2route.models.features) [n, n_features].
        hidden_dim: width of the hidden layer.
    """

    def __init__(
        self, start: Start, features: NDArray[np.float32], *, hidden_dim: int = 256
    ) -> None:
        super().__init__(start)
        _check_sizes(hidden_dim=hidden_dim)
        generator = start.generator()
        n_features = features.shape[1]
        self.linear = _linear(n_features, start.dim + 1, generator)
        nn.init.zeros_(self.linear.weight)
        self.network = _feed_forward(n_features, hidden_dim, start.dim + 1, generator)
        self.features: Tensor
        self.register_buffer("features", torch.from_numpy(features), persistent=False)
        # Groups of features have length 1: scaled by this, their entries have variance 1.
        self.spread = float(np.sqrt(start.vectors.shape[1]))

    def correction(self) -> Tensor:
        """Corrections of vectors, and in the last column of biases [n, d + 1]."""
        changes: Tensor = self.linear(self.features) + self.network(self.spread * self.features)
        return changes


class CorrectedSpace(nn.Module):
    """Base vectors plus a network's correction, and the query map.

    Without a correction l2 scores are α(⟨x, q⟩ − |x|²/2 + c), which ranks by distance; with a query
    matrix P, x and q stand for Px and Pq. The constant c is the mean of |x|²/2: biases are small,
    and zero where all vectors have the same length. Inner-product scores are α⟨x, q⟩.

    Args:
        start: the scores without a correction.
    """

    def __init__(self, start: Start) -> None:
        super().__init__()
        vectors, query_matrix = start.vectors, start.query_matrix
        self.sharpness = float(start.sharpness)
        rows = vectors if query_matrix is None else vectors @ query_matrix.T  # [n, d]
        halves = np.einsum("nd,nd->n", rows, rows, dtype=np.float64) / 2  # [n]
        bias = (halves.mean() - halves).astype(np.float32)  # [n]
        if start.scorer == "ip":
            bias[:] = 0
        self.rows: Tensor
        self.bias: Tensor
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("bias", torch.from_numpy(bias), persistent=False)
        matrix = None if query_matrix is None else nn.Parameter(torch.tensor(query_matrix))
        self.query_matrix: nn.Parameter | None
        self.register_parameter("query_matrix", matrix)  # [d, D]

    def vertices(self, correction: Tensor) -> tuple[Tensor, Tensor]:
        """Routing vectors [n, d] and biases [n], given their correction [n, d + 1]."""
        rows = self.rows + correction[:, :-1]  # [n, d]
        bias = self.bias + correction[:, -1]  # [n]
        return self.sharpness * rows, self.sharpness * bias

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, D] into the routing space [batch, d]."""
        return queries if self.query_matrix is None else queries @ self.query_matrix.T


class ConvolutionBlock(nn.Module):
    """Graph convolution, ELU and a linear map; residual connection; layer normalisation.

    The mean over neighbourhoods commutes with the convolution's linear map. It is taken before the
    map, where features are narrower.
    """

    def __init__(self, n_features: int, n_filters: int, generator: torch.Generator) -> None:
        super().__init__()
        self.convolution = _linear(n_features, n_filters, generator)
        self.dense = _linear(n_filters, n_features, generator)
        self.norm = nn.LayerNorm(n_features)

    def forward(self, hidden: Tensor, smoothed: Tensor) -> Tensor:
        """Features of the next block [n, D], given features and their neighbourhoods' means."""
        filtered = functional.elu(self.convolution(smoothed), inplace=True)  # [n, n_filters]
        normal: Tensor = self.norm(hidden + self.dense(filtered))  # [n, D]
        return normal


class NeighborhoodMean(nn.Module):
    """Mean over each vertex and its out-neighbours; a neighbour listed twice counts twice.

    Neighbourhoods and their transpose are stored as flat lists. The gradient is then a sum over
    lists too, in an order that does not depend on threads.

    Args:
        neighbors: padded adjacency int32 [n, width]; −1 where there is no neighbour.
    """

    def __init__(self, neighbors: NDArray[np.int32]) -> None:
        super().__init__()
        n = len(neighbors)
        lists = np.column_stack([np.arange(n, dtype=np.int32), neighbors])  # [n, 1 + width]
        sources, slots = np.nonzero(lists >= 0)  # [n_edges], by source
        sinks = lists[sources, slots]  # [n_edges]
        by_sink = np.argsort(sinks, kind="stable")
        self.members: Tensor
        self.starts: Tensor
        self.reverse_members: Tensor
        self.reverse_starts: Tensor
        dtype = place_type(len(sinks))  # one for all: torch would convert them at every call
        self._keep("members", sinks.astype(dtype))
        self._keep("starts", _starts(sources, n).astype(dtype))
        self._keep("reverse_members", sources[by_sink].astype(dtype))
        self._keep("reverse_starts", _starts(sinks, n).astype(dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Means [n, width] of features [n, width]."""
        means: Tensor = _Mean.apply(  # type: ignore[no-untyped-call] # torch leaves apply untyped
            features, self.members, self.starts, self.reverse_members, self.reverse_starts
        )
        return means

    def _keep(self, name: str, places: NDArray[np.signedinteger]) -> None:
        self.register_buffer(name, torch.from_numpy(places), persistent=False)


class _Mean(torch.autograd.Function):
    """A mean over lists; its gradient is a sum over the transposed lists."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        features: Tensor,
        members: Tensor,
        starts: Tensor,
        reverse_members: Tensor,
        reverse_starts: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(starts, reverse_members, reverse_starts)
        return functional.embedding_bag(
            members, features, starts, mode="mean", include_last_offset=True
        )  # [n, width]

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        starts, reverse_members, reverse_starts = ctx.saved_tensors  # type: ignore[attr-defined] # torch adds it at run time
        shares = gradients[0] / starts.diff()[:, None]  # [n, width]
        sums = functional.embedding_bag(
            reverse_members, shares, reverse_starts, mode="sum", include_last_offset=True
        )  # [n, width]
        return sums, None, None, None, None


def standardize(vectors: NDArray[np.float32]) -> Tensor:
    """Centre vectors [n, D] and scale them by one factor, to entries of variance 1."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)  # [n, D]
    scale = np.sqrt(np.mean(centred**2)) or 1.0
    return torch.from_numpy((centred / scale).astype(np.float32))


def place_type(n_edges: int) -> type[np.signedinteger]:
    """The smaller of int32 and int64 that can index `n_edges` edges."""
    return np.int32 if n_edges <= np.iinfo(np.int32).max else np.int64


def _starts(owners: NDArray[np.integer], n: int) -> NDArray[np.integer]:
    """Offset of each owner's list, and the end of the last one [n + 1]."""
    return np.concatenate([[0], np.bincount(owners, minlength=n).cumsum()])


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear map initialised from this generator, independent of torch's global one."""
    linear = nn.Linear(n_inputs, n_outputs, device="meta").to_empty(device="cpu")
    nn.init.xavier_normal_(linear.weight, generator=generator)
    nn.init.zeros_(linear.bias)
    return linear


def _feed_forward(
    n_inputs: int, hidden_dim: int, n_outputs: int, generator: torch.Generator
) -> nn.Sequential:
    """Two layers with an ELU between them; the second starts at zero."""
    last = _linear(hidden_dim, n_outputs, generator)
    nn.init.zeros_(last.weight)
    return nn.Sequential(_linear(n_inputs, hidden_dim, generator), nn.ELU(inplace=True), last)


def _check_neighbors(neighbors: NDArray[np.int32], n: int) -> None:
    if neighbors.dtype != np.int32 or neighbors.ndim != 2 or len(neighbors) != n:
        raise ValueError(
            f"expected neighbors int32 [{n}, width], got {neighbors.dtype} {neighbors.shape}"
        )
    low, high = int(neighbors.min(initial=-1)), int(neighbors.max(initial=-1))
    if low < -1 or high >= n:
        raise ValueError(f"expected neighbors in [-1, {n}), got {low} to {high}")


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if index_of(size) < 1:
            raise ValueError(f"expected {name} of at least 1, got {size}")
