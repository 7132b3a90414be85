"""Laws of explanations: they show the search that is done, and what it misses."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from entry_tables import without_table
from indexes import DIM, QUERIES, VALIDATION, VECTORS, built, with_everything
from l2route.data.metrics import recall_per_query
from l2route.data.truth import exact_neighbors
from l2route.explain.explanation import Explanation
from l2route.explain.walk import Walk
from l2route.index import RoutingIndex, load

LIMITS: list[dict[str, Any]] = [{"budget": 90}, {"ef": 20}, {"budget": 300, "ef": 15}]


def check_consistent(found: Explanation) -> None:
    """Counts, places and distances of an explanation agree with each other."""
    n = len(found.ids)
    assert len(found.distances) == len(found.positions) == n
    assert np.isfinite(found.positions).all()
    assert np.isfinite(found.origin).all()
    assert 0 <= found.share <= 1
    for walk in found.walks:
        assert len(np.unique(walk.visited)) == len(walk.visited) == len(walk.scores)
        assert (np.diff(walk.hops) >= 0).all()
        by_hop = [walk.n_visited, walk.n_computed, walk.recalls]
        assert [len(values) for values in by_hop] == [walk.n_hops + 1] * 3
        assert walk.n_visited[-1] == len(walk.visited)
        assert (np.diff(walk.n_computed) >= 0).all()
        assert ((walk.recalls >= 0) & (walk.recalls <= 1)).all()
        for rank, point in enumerate(found.neighbors.tolist()):
            hops = walk.hops[walk.visited == point].tolist()
            assert hops == ([] if walk.found_at[rank] < 0 else [walk.found_at[rank]])


def check_is_search(index: RoutingIndex, found: Explanation, walk: Walk, **limits: Any) -> None:
    """A walk visits, costs and answers what a search with its limits does."""
    result = index.search(found.query, found.k, space=walk.space, trace=True, **limits)
    assert result.trace is not None
    rows = index.rows_of(found.ids[walk.visited])
    np.testing.assert_array_equal(rows, result.trace.vertices)
    np.testing.assert_array_equal(index.rows_of(found.ids[walk.expanded]), result.trace.expanded)
    np.testing.assert_array_equal(walk.hops, result.trace.hops)
    assert walk.cost == pytest.approx(result.n_computed[0])
    answers = result.ids[0][result.ids[0] >= 0]
    np.testing.assert_array_equal(found.ids[walk.answers], answers)
    true = np.full((1, found.k), np.inf)
    true[0, : len(found.neighbors)] = found.distances[found.neighbors]
    recall = recall_per_query(result.distances, true, found.k)[0]
    assert walk.recall == pytest.approx(recall)


def test_walks_are_those_of_searches(index: RoutingIndex) -> None:
    """Both walks visit, expand, cost and answer what `search` does in their spaces."""
    for limits in LIMITS:
        found = index.explain(QUERIES[0], 5, **limits)
        check_consistent(found)
        names = list(dict.fromkeys([index.spaces[0].name, index.spaces[-1].name]))
        assert [walk.space for walk in found.walks] == names
        for walk in found.walks:
            check_is_search(index, found, walk, **limits)


@pytest.mark.parametrize("slack", [0.0, 0.05, 0.3])
def test_walks_by_slack(slack: float) -> None:
    """Walks that end by slack are those of searches, too."""
    index = with_everything()
    for query in QUERIES[:5]:
        found = index.explain(query, 5, slack=slack)
        check_consistent(found)
        for walk in found.walks:
            check_is_search(index, found, walk, slack=slack)


def test_neighbors_are_exact(index: RoutingIndex) -> None:
    """The true neighbours are those of an exact search, and have its distances."""
    base = index.base
    for query in QUERIES[:5]:
        found = index.explain(query, 7)
        truth = exact_neighbors(base.vectors(), query[None], 7, base.metric)
        expected = truth.ids[0] if index.labels is None else index.labels[truth.ids[0]]
        np.testing.assert_array_equal(found.ids[found.neighbors], expected)
        np.testing.assert_allclose(
            found.distances[found.neighbors], truth.distances[0], rtol=1e-5, atol=1e-6
        )


def test_each_hop_visits_neighbours_of_what_it_expands() -> None:
    """What a hop visits is in the list of the vertex that it expands; hop 0 visits entry points."""
    index = built(entry=[3, 99])
    found = index.explain(QUERIES[0], 5, budget=120)
    (walk,) = found.walks
    assert set(found.ids[walk.visited[walk.hops == 0]].tolist()) == {3, 99}
    for hop in range(1, walk.n_hops + 1):
        expanded = int(found.ids[walk.expanded[hop - 1]])
        seen = set(found.ids[walk.visited[walk.hops == hop]].tolist())
        assert seen <= set(index.graph.neighbors[expanded].tolist())


@pytest.mark.parametrize("space", ["original", "original-int8"])
def test_recall_so_far_is_that_of_a_search_that_ends_there(space: str) -> None:
    """After each hop, recall and cost are those of a search whose budget ends with the hop."""
    index = without_table(with_everything())
    for query in QUERIES[:4]:
        found = index.explain(query, 5, budget=120, rerank=8, space=space)
        walk = found.walks[-1]
        distances = found.distances[found.neighbors][None].astype(np.float64)
        rerank = 0 if space == "original" else 8
        for hop in range(walk.n_hops + 1):
            budget = int(walk.n_visited[hop]) + rerank
            short = index.search(query, 5, budget=budget, rerank=rerank or None, space=space)
            assert short.n_routing[0] == walk.n_visited[hop]
            assert walk.n_computed[hop] == pytest.approx(short.n_computed[0])
            recall = recall_per_query(short.distances, distances, 5)[0]
            assert walk.recalls[hop] == pytest.approx(recall), hop


@pytest.mark.parametrize("space", ["original", "original-int8"])
def test_finding_entry_points_is_part_of_the_cost(space: str) -> None:
    """With entry points that depend on the query the same holds, where the budget allows them."""
    index = with_everything()
    table = index.graph.table
    assert table is not None
    most = len(table.groups) + table.members.shape[1]  # rows of the table, of all dimensions
    rerank = 0 if space == "original" else 8
    for query in QUERIES[:4]:
        walk = index.explain(query, 5, budget=120, rerank=8, space=space).walks[-1]
        n_checked = 0
        for hop in range(walk.n_hops + 1):
            budget = int(walk.n_computed[hop]) if rerank == 0 else int(walk.n_visited[hop]) + most
            if budget <= most:
                continue
            short = index.search(query, 5, budget=budget, rerank=rerank or None, space=space)
            n_checked += 1
            if rerank == 0:
                assert short.n_computed[0] == walk.n_computed[hop]
                assert short.n_hops[0] == hop
        assert n_checked > 3
        whole = index.search(query, 5, budget=120, rerank=8, space=space)
        assert walk.cost == pytest.approx(whole.n_computed[0])


def test_walks_share_their_limits() -> None:
    """Without limits both walks have the larger default budget; with a recall, each its own."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(700, 300)).astype(np.float32)
    index = RoutingIndex.build(vectors, pca_dim=200, degree=8, ef_construction=40)
    plain, pca = index.explain(vectors[0] + 0.1).walks
    assert plain.limits == pca.limits
    assert plain.limits.budget == 2 * (32 + 200)
    assert plain.cost <= 464
    assert pca.cost <= 464
    small = with_everything()
    plain, coded = small.explain(QUERIES[0], 5, recall=0.9).walks
    assert coded.limits == small.setting(0.9, 5).limits
    assert plain.limits == small.setting(0.9, 5, space="original").limits


def test_one_walk_in_the_original_space() -> None:
    """There is one walk if the space is the original one."""
    index = with_everything()
    assert len(index.explain(QUERIES[0], space="original").walks) == 1
    assert [walk.space for walk in index.explain(QUERIES[0], space="biased").walks] == [
        "original",
        "biased",
    ]


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("codes", [False, True])
def test_living_indexes_are_explained_by_ids(metric: str, codes: bool) -> None:
    """After adds and deletes, neighbours and answers have the right ids; deleted ones have none."""
    rng = np.random.default_rng(2)
    index = built(metric=metric, ids=np.arange(len(VECTORS)) * 3 + 10)
    if codes:
        index.compress("int8")
    index.delete(index.ids[rng.choice(len(VECTORS), 50, replace=False)])
    index.add(rng.normal(size=(60, DIM)), np.arange(60) + 10_000)
    query = QUERIES[1]
    found = index.explain(query, 8, budget=150)
    check_consistent(found)
    ids = index.ids
    truth = exact_neighbors(index.vectors(ids), query[None], 8, metric)
    np.testing.assert_array_equal(found.ids[found.neighbors], ids[truth.ids[0]])
    for walk in found.walks:
        known = found.ids[walk.visited]
        assert np.isin(known[known != -1], ids).all()
        assert (known == -1).any()  # walks lead through deleted vectors
        answers = found.ids[walk.answers]
        assert np.isin(answers, ids).all()
        assert len(answers) == 8
        reach = found.distances[walk.answers]
        assert (np.diff(reach) >= -1e-5).all()
        right = np.isin(answers, found.ids[found.neighbors]).mean()
        assert walk.recall == pytest.approx(right)
    if not codes:
        wide = index.explain(query, 8, ef=300).walks[0]
        assert wide.recall == 1.0


def test_explanations_while_others_change_the_index() -> None:
    """Explanations stay consistent while another thread adds and deletes."""
    rng = np.random.default_rng(3)
    index = built()
    index.delete([0])
    failures: list[BaseException] = []

    def change() -> None:
        try:
            for _ in range(40):
                added = index.add(rng.normal(size=(20, DIM)))
                index.delete(added[:15])
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=change)
    thread.start()
    while thread.is_alive():
        found = index.explain(QUERIES[2], 6)
        check_consistent(found)
        assert (found.ids[found.neighbors] != -1).all()
    thread.join()
    assert not failures


def test_mapped_indexes(tmp_path: Path) -> None:
    """An index that is mapped into memory is explained like the one that was saved."""
    index = with_everything()
    index.save(tmp_path / "index.l2r")
    mapped = load(tmp_path / "index.l2r", mmap=True)
    a, b = (each.explain(QUERIES[0], 5).to_dict() for each in (index, mapped))
    assert a == b


def test_many_dimensions() -> None:
    """Vectors of 1,536 dimensions are explained, also by codes."""
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(300, 1536)).astype(np.float32)
    index = RoutingIndex.build(vectors, "cosine", degree=8, ef_construction=40)
    index.compress("int8")
    found = index.explain(vectors[7] + 0.05, 10, budget=200)
    check_consistent(found)
    assert found.ids[found.neighbors[0]] == 7


def test_equal_vectors() -> None:
    """Where all vectors are equal any answer is right, and the map is one point."""
    index = RoutingIndex.build(np.ones((500, 4), np.float32), degree=8)
    found = index.explain(np.ones(4), 10, budget=50)
    check_consistent(found)
    assert found.walks[0].recall == 1.0
    assert np.ptp(found.positions) == 0
    zero = RoutingIndex.build(np.zeros((20, 4), np.float32), "ip")
    check_consistent(zero.explain(np.zeros(4), 3))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_vectors_than_answers(n: int) -> None:
    """With fewer than k vectors all are true neighbours, and recall is a share of them."""
    index = RoutingIndex.build(VECTORS[:n])
    found = index.explain(QUERIES[0], 10)
    check_consistent(found)
    assert len(found.neighbors) == n
    assert found.walks[0].recall == 1.0
    assert f"{n} vectors" in str(found)


def test_one_dimension() -> None:
    """Vectors of one dimension lie on a line of the map, which keeps everything."""
    index = RoutingIndex.build(np.arange(50, dtype=np.float32)[:, None], degree=4)
    found = index.explain([20.3], 3)
    assert np.ptp(found.positions[:, 1]) == 0
    assert found.share == pytest.approx(1.0)
    assert found.ids[found.neighbors].tolist() == [20, 21, 19]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": QUERIES[:2]}, "expected one query"),
        ({"query": QUERIES[0, :-1]}, "expected queries"),
        ({"query": [np.nan] * DIM}, "finite"),
        ({"k": 0}, "expected k of at least 1"),
        ({"space": "unheard of"}, "expected a space of"),
        ({"budget": 0}, "expected a budget"),
        ({"ef": 0}, "expected ef"),
        ({"recall": 0.9, "ef": 10}, "expected a recall, or else"),
        ({"recall": 0.9}, "expected validation queries"),
    ],
)
def test_what_cannot_be_explained(arguments: dict[str, Any], message: str) -> None:
    """Errors say what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        built(pca_dim=5).explain(**{"query": QUERIES[0]} | arguments)


def test_empty_index() -> None:
    """An index without vectors says what it needs."""
    with pytest.raises(ValueError, match="expected an index with vectors"):
        RoutingIndex.empty(DIM).explain(QUERIES[0])


def test_explanation_as_json() -> None:
    """`to_dict` is plain JSON, without infinities, from which all arrays can be read."""
    index = with_everything()
    index.validate_with(VALIDATION)
    found = index.explain(QUERIES[0], 5)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    np.testing.assert_array_equal(read["ids"], found.ids)
    np.testing.assert_allclose(read["positions"], found.positions, rtol=1e-6)
    for walk, plain in zip(found.walks, read["walks"], strict=True):
        np.testing.assert_array_equal(plain["visited"], walk.visited)
        np.testing.assert_allclose(plain["n_computed"], walk.n_computed, rtol=1e-6)
        np.testing.assert_allclose(plain["recalls"], walk.recalls, rtol=1e-6)


def test_text() -> None:
    """The text has a line for each walk, and one for each true neighbour."""
    found = with_everything().explain(QUERIES[0], 5, budget=60)
    text = str(found)
    plain, coded = found.walks
    assert f"{plain.n_hops}" in text
    assert "recall@5" in text
    for point, at in zip(found.neighbors.tolist(), plain.found_at.tolist(), strict=True):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{found.ids[point]} ")]
        assert ("missed" in line) or f"hop {at}" in line
    assert "budget 60" in text
    assert repr(found).startswith("<Explanation: recall@5 of original (")
    assert coded.space in repr(found)


def test_names() -> None:
    """Names stand in place of ids where there are any; others are refused by their number."""
    found = built().explain(QUERIES[0], 5)
    named = found.named(lambda ids: [f"word {i}" if i % 2 else None for i in ids.tolist()])
    for point, id_ in enumerate(found.ids.tolist()):
        assert named.name_of(point) == (f"word {id_}" if id_ % 2 else str(id_))
    with pytest.raises(ValueError, match="one per id, got 1"):
        found.named(lambda ids: ["one"])
