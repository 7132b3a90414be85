"""Laws of routing models: which methods and attributes they have, names, scaling."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from l2route.models.graph_filter import GraphFilter
from l2route.models.networks import CorrectingNetwork, FeedForward
from l2route.models.protocol import check_model, has_constant_vertices, name_of, unit_scale
from l2route.models.start import Start


class Table(nn.Module):
    """A model without parameters: all vectors and biases are 0."""

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [3, 2] and biases [3]."""
        return torch.zeros(3, 2), torch.zeros(3)

    def queries(self, queries: Tensor) -> Tensor:
        """Unchanged."""
        return queries


def test_vertices_are_not_constant_by_default() -> None:
    """They are constant only in a model with `constant_vertices`, such as the filter."""
    assert GraphFilter.constant_vertices
    assert not hasattr(CorrectingNetwork, "constant_vertices")
    model = Table()
    assert not has_constant_vertices(model)
    model.constant_vertices = True  # type: ignore[assignment] # torch types attributes as tensors
    assert has_constant_vertices(model)


def test_only_modules_with_both_methods_are_models() -> None:
    """Any other object is refused with an error that names its class."""
    model = Table()
    assert check_model(model) is model
    plain = type("Plain", (), {"vertices": Table.vertices, "queries": Table.queries})()
    for wrong, name in ((nn.Linear(2, 2), "torch.nn.modules.linear.Linear"), (plain, "Plain")):
        with pytest.raises(ValueError, match=f"vertices and queries, an nn.Module, got .*{name}"):
            check_model(wrong)


def test_models_are_named_by_module_and_class() -> None:
    """Models of the same class have the same name."""
    vectors = np.eye(3, dtype=np.float32)
    assert name_of(FeedForward(Start(vectors, 1.0))) == "l2route.models.networks.FeedForward"
    assert name_of(Table()) == f"{__name__}.Table"


def test_scaled_vectors_have_unit_length() -> None:
    """Scaled vectors have a root-mean-square length of 1; vectors of zeros keep their scale."""
    vectors = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * 7
    scaled = vectors * unit_scale(vectors)
    assert (scaled**2).sum(axis=1).mean() == pytest.approx(1)
    assert unit_scale(np.zeros((4, 3), np.float32)) == 1
