"""Laws of the start of a run: plain space, untrained model, temperature."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.vectors import Metric
from l2route.models.collapse import space_of
from l2route.models.graph_filter import GraphFilter
from l2route.search.encode import encode_vertices
from l2route.search.limits import Limits
from l2route.search.query_aware import query_aware_space
from l2route.search.searcher import Searcher
from l2route.search.space import original_space, pca_space
from l2route.training.loop import learn_space
from l2route.training.problem import Problem, pose
from l2route.training.start import (
    Sample,
    calibrate_sharpness,
    make_model,
    plain_space,
    start_space,
)
from learning import OPTIONS, words


def test_a_fresh_filter_ranks_like_the_plain_space(problem: Problem) -> None:
    """An untrained filter, collapsed, finds the answers of the original vectors."""
    model = make_model(problem, OPTIONS, OPTIONS.goals, plain_space(problem.base, None), 40.0)
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
    model = make_model(problem, options, options.goals, plain_space(problem.base, 10), 40.0)
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


def asked(n: int, seed: int) -> NDArray[np.float32]:
    """Queries that vary along the axes along which the words vary least, of the words' length."""
    vectors = words().base
    axes = np.linalg.eigh(np.cov(vectors.T))[1][:, ::-1]  # largest variance first
    spread = np.linspace(0.02, 0.2, 50)
    return (np.random.default_rng(seed).normal(size=(n, 50)) * spread @ axes.T).astype(np.float32)


def test_the_start_knows_the_queries_where_that_is_better(
    index: RoutingIndex, problem: Problem
) -> None:
    """Where it is no better, and for networks, it is PCA; with all dimensions the vectors."""
    options = replace(OPTIONS, dim=10)
    elsewhere = pose(index.graph, index.base, asked(3000, 0), options)
    assert start_space(elsewhere, options).name == "aware10"
    for other in (replace(options, model="ffn"), replace(options, hidden_dim=8)):
        assert start_space(elsewhere, other).name == "pca10"
    assert start_space(elsewhere, OPTIONS).name == "original"
    # Words like the base vectors: whichever is chosen is no worse than PCA.
    sample = Sample.of(problem, 1, 0)
    start = start_space(problem, options)
    assert sample.shares(start, 4).mean() >= sample.shares(pca_space(index.base, 10), 4).mean()


def test_shares_are_those_of_exhaustive_searches(problem: Problem) -> None:
    """A sample of all vectors has the true neighbours, and the original space finds all of them."""
    sample = Sample.of(problem, 5, 0)
    assert sample.shares(original_space(problem.base), 5).min() == 1
    short = pca_space(problem.base, 6)
    found = Searcher(problem.graph, short, problem.base).search(
        sample.queries[:40], 7, limits=Limits(ef=4000, rerank=7)
    )
    for query in range(40):
        near = sample.rows[sample.neighbors[query]]
        share = np.isin(near, found.ids[query]).mean()
        assert sample.shares(short, 7)[query] == pytest.approx(share)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_a_fresh_filter_ranks_like_the_space_that_knows_the_queries(metric: Metric) -> None:
    """An untrained filter has the scores of that space, up to a factor and what a query adds."""
    data = words()
    index = RoutingIndex.build(
        data.base * np.linspace(1, 3, 4000)[:, None], metric, degree=8, ef_construction=40
    )
    options = replace(OPTIONS, dim=12)
    posed = pose(index.graph, index.base, asked(2000, 1) + np.float32(0.05), options)
    plain = query_aware_space(posed.base, posed.train[posed.hidden < 0], 12)
    model = make_model(posed, options, options.goals, plain, 30.0)
    assert isinstance(model, GraphFilter)
    fresh = space_of(model, 50, 12, posed.scale, 8)
    queries = posed.validation.queries[:50]
    scores = []
    for space in (plain, fresh):
        assert space.query_matrix is not None
        assert space.bias is not None
        own = queries @ space.query_matrix.T @ space.rows[:, :12].T + space.bias
        own = own - own.mean(axis=1, keepdims=True)
        scores.append(own / own.std())
    np.testing.assert_allclose(scores[1], scores[0], atol=5e-3)


def test_learning_starts_from_the_space_that_knows_the_queries(index: RoutingIndex) -> None:
    """The report compares with it, the gain is over PCA, and new vectors are encoded."""
    options = replace(OPTIONS, dim=16, steps=60)
    posed = pose(index.graph, index.base, asked(3000, 0), options)
    space, report = learn_space(posed, options)
    assert report.contests[0].rival == "aware16"
    assert space.gain is not None
    assert space.gain.pca_dim == 16
    assert space.gain.plain < report.plain - 0.05
    assert report.learned > report.plain - 0.02
    ids = np.arange(0, 4000, 97)
    degrees = np.bincount(index.graph.neighbors[index.graph.neighbors >= 0], minlength=4000)
    rows, bias = encode_vertices(space, index.base, index.graph.neighbors, ids, degrees[ids])
    np.testing.assert_allclose(rows, space.rows[ids], atol=1e-3 * np.abs(space.rows).max())
    assert bias is not None
    assert space.bias is not None
    np.testing.assert_allclose(bias, space.bias[ids], atol=1e-3 * np.abs(space.bias).max())


def test_sharpness_follows_the_scale(index: RoutingIndex, problem: Problem) -> None:
    """Vectors scaled by a constant are calibrated to the same sharpness."""
    data = words()
    scaled = RoutingIndex.build(
        data.base * 7, degree=8, ef_construction=60, entry=0, graph="nsw", refine=False
    )
    other = pose(scaled.graph, scaled.base, data.learn * 7, OPTIONS)
    assert calibrate_sharpness(other, OPTIONS.goals) == pytest.approx(
        calibrate_sharpness(problem, OPTIONS.goals), rel=0.02
    )
