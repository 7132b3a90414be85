"""Laws of the work of one request: it is bounded by the options, whatever ends its walks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from l2route.cluster.deployment import capped
from l2route.index import RoutingIndex
from l2route.search.limits import Limits
from l2route.serve.options import ServeOptions
from serving import client_of

DIM, N = 16, 4000
RNG = np.random.default_rng(1)
VECTORS = RNG.normal(size=(N, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(20, DIM)).astype(np.float32)
MOST = 50
"""Budget of the servers here."""


@pytest.fixture(scope="module", params=["original", "compressed"])
def path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The directory of an index whose walks reach far, also one that reranks."""
    index = RoutingIndex.build(VECTORS, ef_construction=40, degree=8)
    index.validate_with(RNG.normal(size=(200, DIM)))
    if request.param == "compressed":
        index.compress("int8")
    path = tmp_path_factory.mktemp("work") / "index.l2r"
    index.save(path)
    return path


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[TestClient]:
    """A client of a server with a small budget."""
    with client_of(path, ServeOptions(max_budget=MOST)) as client:
        yield client


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"slack": 1e9},
        {"slack": 1e9, "ef": 50},
        {"ef": 50},
        {"ef": 45, "k": 20},
        {"rerank": 20},
        {"budget": 40},
        {"recall": 0.99},
        {"recall": 0.99, "guarantee": "p95"},
        {"recall": 0.95, "where": list(range(0, N, 2))},
        {"slack": 1e9, "where": list(range(0, N, 2))},
    ],
    ids=str,
)
def test_the_budget_bounds_every_search(client: TestClient, asked: dict[str, Any]) -> None:
    """No query computes more distances than the largest budget, whatever is asked for."""
    answer = client.post("/search", json={"queries": QUERIES.tolist(), **asked})
    assert answer.status_code == 200, answer.text
    assert max(answer.json()["n_computed"]) <= MOST
    assert all(answer.json()["ids"])


@pytest.mark.parametrize("asked", [{"ef": 40}, {"slack": 0.1}, {"recall": 0.9}, {}, {"k": 3}])
def test_budgets_that_end_no_walk_change_nothing(path: Path, asked: dict[str, Any]) -> None:
    """Below the largest budget, answers and costs are those of the index."""
    with client_of(path, ServeOptions(max_budget=N)) as client:
        expected = client.served.index.search(QUERIES, **asked)  # type: ignore[attr-defined]
        found = client.post("/search", json={"queries": QUERIES.tolist(), **asked}).json()
    if asked != {"k": 3}:
        assert found["ids"] == expected.ids.tolist()
    assert found["n_computed"] == expected.n_computed.tolist()


@pytest.mark.parametrize(
    ("asked", "options", "got"),
    [
        ({"budget": 51}, {}, "20 × 51"),
        ({"ef": 51}, {}, "20 × 51"),
        ({"rerank": 60, "budget": 10}, {}, "20 × 60"),
        ({}, {}, "20 × 256"),
        ({}, {"max_budget": 51}, "20 × 51"),
        ({"slack": 1.0}, {"max_work": 19}, "20 × 1"),
        ({"recall": 0.9}, {"max_work": 19}, "20 × 1"),
        ({}, {"max_work": 19, "recall": 0.9}, "20 × 1"),
    ],
)
def test_more_work_than_allowed_is_refused(
    path: Path,
    asked: dict[str, Any],
    options: dict[str, Any],
    got: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request for more rows times budget than the largest work gets 422, and nothing is done."""
    chosen = ServeOptions(**{"max_work": 1000} | options)
    with client_of(path, chosen) as client:
        monkeypatch.setattr(client.served.index, "search", None)  # type: ignore[attr-defined]
        answer = client.post("/search", json={"queries": QUERIES.tolist(), **asked})
        assert answer.status_code == 422, answer.text
        expected = f"at most {chosen.max_work} distance computations in a request, got {got}"
        assert expected in answer.json()["detail"]


@pytest.mark.parametrize("asked", [{"slack": 1e9}, {"recall": 0.99}])
def test_the_work_of_many_rows_is_bounded(path: Path, asked: dict[str, Any]) -> None:
    """Where no budget is asked for, rows share the largest work."""
    with client_of(path, ServeOptions(max_work=800)) as client:
        found = client.post("/search", json={"queries": QUERIES.tolist(), **asked}).json()
        assert max(found["n_computed"]) <= 40


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Limits(), Limits(MOST)),
        (Limits(40), Limits(40)),
        (Limits(60), Limits(MOST)),
        (Limits(ef=20), Limits(MOST, ef=20, rerank=20)),
        (Limits(ef=45), Limits(MOST, ef=45, rerank=25)),
        (Limits(slack=1e9), Limits(MOST, slack=1e9, rerank=20)),
        (Limits(slack=0.1, rerank=30), Limits(MOST, slack=0.1, rerank=30)),
    ],
)
def test_shards_have_the_same_bound(asked: Limits, expected: Limits) -> None:
    """Searches of a deployment come under the budget too, unless the shards are smaller."""
    assert capped(asked, MOST, N, 10) == expected
    assert capped(asked, N, N, 10) == asked


def test_usual_batches_pass_and_the_largest_do_not() -> None:
    """The default lets 10,000 rows have budgets of thousands, but not all that one row may have."""
    options = ServeOptions()
    assert 4096 * options.max_rows <= options.max_work < options.max_budget * options.max_rows
