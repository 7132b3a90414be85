"""Fixtures: a small graph, and small indexes of every kind."""

import numpy as np
import pytest
from hypothesis import settings

from indexes import INDEXES, SmallWorld
from l2route.graph.build import GraphOptions, build_graph
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.space import original_space

settings.register_profile("l2route", deadline=None)
settings.load_profile("l2route")


@pytest.fixture(scope="session")
def small_world() -> SmallWorld:
    """A connected graph over 1,000 vectors, with queries."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1000, 12)).astype(np.float32)
    base = BaseVectors.of(vectors, "l2")
    graph = build_graph(
        vectors, options=GraphOptions("nsg", degree=12)
    )  # connected by construction
    queries = rng.normal(size=(60, 12)).astype(np.float32)
    return SmallWorld(base, graph, original_space(base), queries)


@pytest.fixture(scope="module", params=INDEXES)
def index(request: pytest.FixtureRequest) -> RoutingIndex:
    """A small index of every kind, one after another."""
    return INDEXES[request.param]()
