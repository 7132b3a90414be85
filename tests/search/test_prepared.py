"""Laws of plans: prepared searches."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes import QUERIES, built, same_results
from l2route.index import RoutingIndex
from l2route.state.plan import MAX_RECENT
from test_index import BAD_RERANKS, BAD_SEARCHES


def test_a_plan_answers_as_a_search(index: RoutingIndex) -> None:
    """A plan answers like a search with its limits: single or batch, any dtype and threads."""
    for space in index.spaces:
        for limit in ({"budget": 90, "rerank": 9}, {"ef": 20}, {"ef": 30, "rerank": 12}, {}):
            options: dict[str, Any] = {"k": 4, "space": space.name, **limit}
            try:
                expected = index.search(QUERIES, **options)
            except ValueError:
                continue  # too small a budget for the space
            for n_threads in (0, 1, 3):
                plan = index.plan(**options, n_threads=n_threads)
                assert same_results(plan(QUERIES), expected)
                assert same_results(plan(QUERIES.astype(np.float64), trace=True), expected)
                alone = [plan(query) for query in QUERIES]
                np.testing.assert_array_equal([one.ids[0] for one in alone], expected.ids)


@pytest.mark.parametrize("fault", BAD_SEARCHES | BAD_RERANKS)
def test_a_bad_plan_is_refused(fault: str) -> None:
    """Wrong arguments of a plan give the error messages of a search."""
    given_, message = (BAD_SEARCHES | BAD_RERANKS)[fault]
    options = dict(given_)
    queries = options.pop("queries", QUERIES)
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        built(pca_dim=5).plan(**options)(queries)


def test_arguments_are_checked_in_every_search() -> None:
    """A search is refused or answered whatever was searched before with equal arguments."""
    index = built()
    expected = index.search(QUERIES, 4, ef=20)
    for bad in ({"k": 4.0, "ef": 20}, {"k": 4, "ef": 20.0}, {"k": 4, "ef": 20, "n_threads": 0.0}):
        with pytest.raises(TypeError):
            index.search(QUERIES, **bad)  # type: ignore[arg-type] # what is tested
    assert same_results(index.search(QUERIES, np.int64(4), ef=np.array(20)), expected)  # type: ignore[arg-type] # no hash


def test_any_number_of_settings_may_be_searched_with() -> None:
    """Searches with more settings than an index keeps plans of answer as ever."""
    index = built()
    answers = [index.search(QUERIES, 4, ef=ef) for ef in range(4, 4 + 2 * MAX_RECENT)]
    for ef, expected in enumerate(answers, 4):
        assert same_results(index.search(QUERIES, 4, ef=ef), expected)


def test_searches_use_new_labels_at_once() -> None:
    """After new labels, a search with the same arguments answers with them."""
    index = built()
    before = index.search(QUERIES, 4, ef=20).ids
    for first in (100, 7, 3_000):
        index.relabel(first + np.arange(len(index)))
        np.testing.assert_array_equal(index.search(QUERIES, 4, ef=20).ids, before + first)


def test_searches_by_recall_follow_the_index() -> None:
    """A search by recall repeated after any change answers as a plan that is made then."""
    index = built()
    log = np.random.default_rng(0).normal(size=(200, QUERIES.shape[1])).astype(np.float32)
    index.validate_with(log)
    changes = (
        lambda: index.compress("int8"),
        lambda: index.relabel(100 + np.arange(len(index))),
        lambda: index.add(QUERIES[:3]),
        lambda: index.delete(index.ids[:5]),
        lambda: index.validate_with(log[::2]),
    )
    for change in changes:
        index.search(QUERIES, 4, recall=0.9)
        index.search(QUERIES, 4, recall=0.9, guarantee="p95")
        change()
        for guarantee in (None, "p95"):
            asked: dict[str, Any] = {"k": 4, "recall": 0.9, "guarantee": guarantee}
            assert same_results(index.search(QUERIES, **asked), index.plan(**asked)(QUERIES))


@pytest.mark.parametrize("is_saved", [False, True])
def test_vectors_that_were_replaced_are_free(is_saved: bool, tmp_path: Path) -> None:
    """Neither recent searches nor a save keep the vectors of an index before it was compressed."""
    index = built()
    index.search(QUERIES, 4, ef=20)
    if is_saved:
        index.save(tmp_path / "index.l2r")
    before = weakref.ref(index.base.rows)
    index.compress("int8", vectors="float16")
    gc.collect()
    assert before() is None


def test_buffers_that_were_too_small_are_free() -> None:
    """When a living index moves into larger buffers, nothing keeps the old ones."""
    index = built()
    index.add(QUERIES[:1])
    index.search(QUERIES, 4, ef=20)
    before = weakref.ref(index._current.state.living)
    index.add(np.repeat(QUERIES, 20, axis=0))
    gc.collect()
    assert before() is None
