"""The interface of routing models.

A custom model is an `nn.Module` with the two methods of `RoutingModel`; see examples/own_model.py.
Every model keeps these rules:

- Scores are inner products plus a bias: score(v, q) = ⟨f(v), g(q)⟩ + b(v), larger is better.
- The query map g is affine, so that it can be saved as a matrix. Other maps are refused.
- Base vectors and queries are multiplied by `unit_scale` before they are passed to a model.
- A model that sets `constant_vertices = True` returns the same vertex vectors at every step, and
  only its query map, biases or shifts learn. Such a model is trained with small batches, on one
  torch thread and on the CPU, since a step costs no more than its walks. Without that attribute a
  model is taken to compute all vertex vectors anew at every step: it is trained with large batches,
  on all threads, and on a GPU if there is one.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from l2route.search.vertex_map import VertexMap


@runtime_checkable
class RoutingModel(Protocol):
    """Scores vertex v for query q by `⟨vertices()[0][v], queries(q)⟩ + vertices()[1][v]`."""

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, width] and biases [n] of all vertices; constants need no gradient."""
        ...

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, dim] to [batch, width]; the map has to be affine."""
        ...


@runtime_checkable
class ShiftedModel(RoutingModel, Protocol):
    """A model with constant vertex vectors, some of which have a learned shift added."""

    def shifts(self) -> tuple[NDArray[np.int64], Tensor]:
        """Vertices [h] and their shifts [h, c + 1]: of the first c columns, then of the bias."""
        ...


@runtime_checkable
class InductiveModel(RoutingModel, Protocol):
    """A model that can also compute the vectors of vertices that it has not been trained with.

    Vectors can be added to an index only if its learned space is of such a model.
    """

    def vertex_map(self, readout: NDArray[np.float32], scale: float) -> VertexMap:
        """The map from a vector and its surroundings to vertices()[0]·matrixᵀ·readout and biases.

        Args:
            readout: [dim, d]; the matrix is that of the query map, queries(x) = x·matrix + c, and
                the biases are vertices()[1] + vertices()[0]·cᵀ.
            scale: factor of vectors, as of queries, before they are passed to the model.
        """
        ...


def has_constant_vertices(model: RoutingModel) -> bool:
    """Whether a model declares that its vertex vectors do not change during training.

    False for a model without the attribute `constant_vertices`.
    """
    return bool(getattr(model, "constant_vertices", False))


def name_of(model: object) -> str:
    """Qualified name of a model's class, such as l2route.models.networks.FeedForward."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def check_model(model: object) -> nn.Module:
    """Return a model that is an `nn.Module` with the methods of `RoutingModel`; refuse others."""
    if isinstance(model, nn.Module) and isinstance(model, RoutingModel):
        return model
    expected = "a model with the methods vertices and queries, an nn.Module"
    raise ValueError(f"expected {expected}, got {name_of(model)}")


def unit_scale(vectors: NDArray[np.floating]) -> float:
    """Factor that scales base vectors [n, dim] to a root-mean-square length of 1."""
    length = float(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1).mean()))
    return 1.0 / length if length > 0 else 1.0
