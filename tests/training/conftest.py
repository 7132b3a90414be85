"""A graph over real vectors, shared by tests of learning."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hops_twin import random_graph
from l2route import RoutingIndex, _core
from l2route.graph.graph import Graph
from l2route.training.problem import Problem, pose
from learning import OPTIONS, words


@pytest.fixture(scope="session")
def index() -> RoutingIndex:
    """A graph over 4,000 words."""
    return RoutingIndex.build(
        words().base, graph="nsw", degree=8, ef_construction=60, entry=0, refine=False
    )


@pytest.fixture(scope="session")
def problem(index: RoutingIndex) -> Problem:
    """Training and validation queries for the index."""
    return pose(index.graph, index.base, words().learn, OPTIONS)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph of more than two blocks of vertices."""
    return random_graph(1, 1200, 3)


@pytest.fixture
def count_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First targets of the blocks computed since the test began."""
    computed: list[int] = []
    plain = _core.hops_to_targets

    def counted(neighbors: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.uint64]:
        computed.append(int(targets[0]))
        return plain(neighbors, targets)

    monkeypatch.setattr(_core, "hops_to_targets", counted)
    return computed
