"""Laws of collapsing: the space scores as the model does, and only affine maps are collapsed."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from l2route.models.collapse import space_of

N, DIM = 20, 6
QueryMap = Callable[[Tensor], Tensor]


class Mapped(nn.Module):
    """A model with random vertex vectors and the given query map."""

    def __init__(self, query_map: QueryMap) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randn(N, DIM, generator=generator)
        self.bias = torch.randn(N, generator=generator)
        self.query_map = query_map

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Constant vectors [N, DIM] and biases [N]."""
        return self.rows, self.bias

    def queries(self, queries: Tensor) -> Tensor:
        """Apply the query map."""
        return self.query_map(queries)


MATRIX = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(2))
AFFINE: dict[str, QueryMap] = {
    "identity": lambda queries: queries,
    "matrix": lambda queries: queries @ MATRIX,
    "matrix and constant": lambda queries: queries @ MATRIX + 3,
    "large constant": lambda queries: queries @ MATRIX + 1e4,
    "constant": lambda queries: torch.ones_like(queries),
    "of rank 1": lambda queries: queries[:, :1] * MATRIX[0],
}
NOT_AFFINE: dict[str, QueryMap] = {
    "tanh": lambda queries: torch.tanh(queries @ MATRIX),
    "a little tanh": lambda queries: queries + 0.05 * torch.tanh(queries @ MATRIX),
    "normalised": lambda queries: nn.functional.normalize(queries + 1, dim=1),
    "absolute": lambda queries: queries.abs(),
    "squares": lambda queries: queries**2,
    "product": lambda queries: queries * queries.roll(1, dims=1),
}


@pytest.mark.parametrize("query_map", AFFINE.values(), ids=AFFINE)
@pytest.mark.parametrize("dim", [DIM, 2])
def test_a_space_scores_as_its_model(query_map: QueryMap, dim: int) -> None:
    """With d = D the space has the scores of its model; with d < D, queries of d dimensions."""
    model = Mapped(query_map)
    space = space_of(model, DIM, dim, 0.5, 8)
    queries = np.random.default_rng(0).normal(size=(7, DIM)).astype(np.float32)
    mapped = 0.5 * queries if space.query_matrix is None else queries @ space.query_matrix.T
    assert mapped.shape == (7, dim)
    if dim == DIM:
        expected = model.queries(torch.from_numpy(0.5 * queries)) @ model.rows.T + model.bias
        got = queries @ space.rows[:, :dim].T + space.bias
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("query_map", NOT_AFFINE.values(), ids=NOT_AFFINE)
def test_a_query_map_that_is_not_affine_is_refused(query_map: QueryMap) -> None:
    """A query map that cannot be saved as a matrix is refused, and the error names the model."""
    with pytest.raises(ValueError, match=r"expected an affine query map, .* got one of .*Mapped"):
        space_of(Mapped(query_map), DIM, DIM, 1.0, 8)


def test_diverged_weights_are_not_reported_as_a_nonlinear_map() -> None:
    """NaN weights collapse to NaN vectors without an error: a run then restores its best state."""
    space = space_of(Mapped(lambda queries: queries * float("nan")), DIM, DIM, 1.0, 8)
    assert np.isnan(space.rows[:, :DIM]).all()
