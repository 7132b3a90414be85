"""Laws of where walks of learning start: where searches of the same graph do."""

from dataclasses import replace

import numpy as np
import pytest

from entry_tables import entries_by_hand, random_table, rows_scored
from l2route.search.entry_rows import starts_of
from l2route.search.space import original_space
from l2route.training.clock import Clock
from l2route.training.problem import Problem
from l2route.training.run import Run
from l2route.training.start import make_model
from learning import OPTIONS, losses


@pytest.fixture
def entered(problem: Problem) -> Problem:
    """The words, on a graph with a table of entry points."""
    table = random_table(np.random.default_rng(0), problem.graph.n_vertices, problem.base.dim)
    return replace(problem, graph=replace(problem.graph, table=table))


def test_starts_are_those_of_searches(entered: Problem) -> None:
    """The entry points of a query's cluster, then the graph's first; rows of the table cost."""
    table, queries, dim = entered.graph.table, entered.train[:200], entered.base.dim
    assert table is not None
    starts = starts_of(entered.graph, entered.base.metric, queries, dim)
    assert starts is not None
    for query, vertices, cost in zip(queries, starts.vertices, starts.costs, strict=True):
        found = dict.fromkeys(vertices[vertices >= 0].tolist())
        assert list(found) == entries_by_hand(table, entered.graph, query)
        assert cost == -(-rows_scored(table, query) * len(table.coordinates) // dim)
        assert cost <= starts.max_cost
    assert starts_of(replace(entered.graph, table=None), "l2", queries, dim) is None


def test_a_run_walks_from_there(problem: Problem, entered: Problem) -> None:
    """Every training query has its start; a budget too small to find it has the graph's own."""
    model = make_model(entered, OPTIONS, OPTIONS.goals, original_space(entered.base), 40.0)
    rollouts = Run(entered, OPTIONS, OPTIONS.goals, model, Clock(None)).rollouts
    expected = starts_of(entered.graph, entered.base.metric, entered.train, entered.base.dim)
    assert expected is not None
    assert rollouts.starts is not None
    np.testing.assert_array_equal(rollouts.starts.vertices, expected.vertices)
    batch = np.array([5, 3])
    found = rollouts._starts_of(batch, expected.max_cost + 1)
    assert found is not None
    np.testing.assert_array_equal(found[0], expected.vertices[batch])
    np.testing.assert_array_equal(found[1], expected.costs[batch])
    assert rollouts._starts_of(batch, expected.max_cost) is None
    few = replace(OPTIONS, steps=4)
    assert losses(entered, few) != losses(problem, few)


def test_another_table_is_another_problem(problem: Problem, entered: Problem) -> None:
    """A checkpoint of walks from elsewhere is not resumed."""
    table = entered.graph.table
    assert table is not None
    moved = replace(table, vertices=table.vertices[::-1].copy())
    other = replace(entered, graph=replace(entered.graph, table=moved))
    assert len({problem.digest(), entered.digest(), other.digest()}) == 3
    assert entered.digest() == replace(entered, graph=replace(entered.graph)).digest()
