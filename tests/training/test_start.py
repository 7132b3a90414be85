"""Laws of the start of a run: plain space, untrained model, temperature."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from l2route import RoutingIndex
from l2route.models.collapse import space_of
from l2route.models.graph_filter import GraphFilter
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space
from l2route.training.problem import Problem, pose
from l2route.training.start import calibrate_sharpness, make_model, plain_space
from learning import OPTIONS, words


def test_a_fresh_filter_ranks_like_the_plain_space(problem: Problem) -> None:
    """An untrained filter, collapsed, finds the answers of the original vectors."""
    model = make_model(problem, OPTIONS, OPTIONS.spending, plain_space(problem.base, None), 40.0)
    assert isinstance(model, GraphFilter)
    space = space_of(model, problem.base.dim, problem.base.dim, problem.scale, 8)
    plain = Searcher(problem.graph, original_space(problem.base), problem.base)
    fresh = Searcher(problem.graph, space, problem.base)
    first, second = (
        searcher.search(problem.validation.queries, 1, limits=limits)
        for searcher, limits in ((plain, Limits(200)), (fresh, Limits(208, rerank=8)))
    )
    assert (first.ids == second.ids).mean() > 0.98


def test_a_projected_filter_collapses_to_its_dimension(problem: Problem) -> None:
    """With d < D the collapsed space has d dimensions and the scores of the model."""
    options = replace(OPTIONS, dim=10)
    model = make_model(problem, options, options.spending, plain_space(problem.base, 10), 40.0)
    assert isinstance(model, GraphFilter)
    assert len(model.hubs) > 5
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape))
    space = space_of(model, 50, 10, problem.scale, 8)
    queries = problem.train[:5]
    with torch.no_grad():
        vectors, bias = (part.clone() for part in model.vertices())
        ids, shifts = model.shifts()
        vectors[ids, :50] += shifts[:, :-1]
        bias[ids] += shifts[:, -1]
        routed = model.queries(torch.from_numpy(queries * problem.scale))
        expected = (routed @ vectors.T + bias).numpy()
    assert space.query_matrix is not None
    got = queries @ space.query_matrix.T @ space.rows[:, :10].T + space.bias
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)


def test_sharpness_follows_the_scale(index: RoutingIndex, problem: Problem) -> None:
    """Vectors scaled by a constant are calibrated to the same sharpness."""
    data = words()
    scaled = RoutingIndex.build(
        data.base * 7, degree=8, ef_construction=60, entry=0, graph="nsw", refine=False
    )
    other = pose(scaled.graph, scaled.base, data.learn * 7, OPTIONS)
    assert calibrate_sharpness(other, OPTIONS.spending) == pytest.approx(
        calibrate_sharpness(problem, OPTIONS.spending), rel=0.02
    )
