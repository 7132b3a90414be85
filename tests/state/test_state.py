"""Laws of an index that is searched while it changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes import QUERIES, VALIDATION, VECTORS, N, built, same_results
from l2route.index import RoutingIndex, load
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import LEARNED, pca_space
from l2route.search.validation import Validation
from l2route.state import changes
from l2route.state import current as current_module
from l2route.state import state as state_module
from l2route.state.state import IndexState

CHANGES: dict[str, Callable[[RoutingIndex], object]] = {
    "refine": lambda index: index.refine(n_threads=1),
    "renumber": lambda index: index.renumber(),
    "int8": lambda index: index.compress("int8"),
    "inlined": lambda index: index.compress("int8", inlined=True),
    "float16": lambda index: index.compress(None, vectors="float16"),
    "both": lambda index: index.compress("int4", vectors="float16"),
    "validate_with": lambda index: index.validate_with(VALIDATION[::-1]),
    "setting": lambda index: index.setting(0.8, k=5),
    "learn": lambda index: index.learn(VALIDATION, steps=1, budget=50, rerank=4),
    "learned": lambda index: index._current.change(with_learned_space),
}


def with_learned_space(state: IndexState) -> IndexState:
    """The change that `learn` makes if the learned space is better."""
    space = replace(pca_space(state.base, 6), name=LEARNED)
    return changes.learned(state, space, Validation.of(state.base, VALIDATION[:40]))


class SlowSearcher(Searcher):
    """A searcher that is slow to make, so that other calls run in the middle of a change."""

    def __init__(self, *args: Any) -> None:
        time.sleep(0.01)
        super().__init__(*args)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> RoutingIndex:
    """An index with validation queries and a setting, whose changes are slow."""
    made = built(graph="knn")
    made.validate_with(VALIDATION)
    made.setting(0.9, k=5)
    for module in (state_module, changes):
        monkeypatch.setattr(module, "Searcher", SlowSearcher)
    return made


@contextmanager
def meanwhile(*calls: Callable[[], object]) -> Iterator[list[list[Any]]]:
    """Repeat calls in threads while the block runs, and collect their results."""
    is_over = threading.Event()

    def repeat(call: Callable[[], object]) -> list[Any]:
        returned = []
        while not is_over.is_set():
            returned.append(call())
        return [*returned, call()]

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(repeat, call) for call in calls]
        returned: list[list[Any]] = []
        try:
            yield returned
        finally:
            is_over.set()
            returned += [future.result() for future in futures]


def search(index: RoutingIndex) -> list[SearchResult]:
    """Answers by beam and by budget in the last space, and of one query in the first."""
    return [
        index.search(QUERIES, k=5, ef=20, n_threads=1),
        index.search(QUERIES, k=5, budget=300, n_threads=2),
        index.search(QUERIES[0], k=5, ef=20, space="original"),
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_searches_see_an_index_before_a_change_or_after_it(
    index: RoutingIndex, change: str
) -> None:
    """An answer during a change is one from before the change or after it."""
    calls = [lambda i=i: search(index)[i] for i in range(3)]
    before = search(index)
    with meanwhile(*calls) as returned:
        CHANGES[change](index)
    after = search(index)
    for seen, *allowed in zip(returned, before, after, strict=True):
        assert all(any(same_results(each, one) for one in allowed) for each in seen)
        assert len(seen) > 1


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_told_and_saved_meanwhile_is_whole(
    index: RoutingIndex, change: str, tmp_path: Path
) -> None:
    """`info`, `n_bytes`, `save` and `setting` see the index before a change or after it."""

    def saved() -> dict[str, Any]:
        index.save(tmp_path / "index")
        return load(tmp_path / "index").info()

    def measure() -> None:
        index.setting(0.7, k=3)
        index.search(QUERIES[:2], k=5, recall=0.9)

    index.setting(0.7, k=3)
    before = index.info()
    with meanwhile(index.info, saved, lambda: index.n_bytes, measure) as returned:
        CHANGES[change](index)
    after = index.info()

    def without_settings(info: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in info.items() if key != "settings"}

    allowed = [without_settings(info) for info in (before, after)]
    for info in (*returned[0], *returned[1]):
        assert without_settings(info) in allowed
        assert {each["space"] for each in info["settings"]} <= {s["name"] for s in info["spaces"]}
    sizes = [round(info["bytes_per_vector"] * N) for info in allowed]
    assert set(returned[2]) <= set(sizes)


def test_searches_during_several_changes_see_each_whole(index: RoutingIndex) -> None:
    """Every answer during a sequence of changes is one from between two of them."""
    allowed = [search(index)]
    with meanwhile(*[lambda i=i: search(index)[i] for i in range(3)]) as returned:  # type: ignore[misc]
        for change in (
            "refine",
            "validate_with",
            "learned",
            "int8",
            "setting",
            "renumber",
            "float16",
        ):
            CHANGES[change](index)
            allowed.append(search(index))
    for i, seen in enumerate(returned):
        assert all(any(same_results(each, answers[i]) for answers in allowed) for each in seen)


def test_a_change_that_fails_leaves_the_index(index: RoutingIndex) -> None:
    """A failed change leaves the state, and the next change is not blocked."""
    before = index._current.state
    with pytest.raises(ValueError, match="expected vectors float16 or None, got 'float8'"):
        index.compress("int8", vectors="float8")  # type: ignore[arg-type]
    assert index._current.state is before
    index.renumber()


def test_no_change_is_lost(index: RoutingIndex) -> None:
    """Concurrent changes are all applied, one after another."""
    with ThreadPoolExecutor(3) as pool:
        for future in [
            pool.submit(index.compress, "int8", space="original"),
            pool.submit(index.compress, "float16", space="original"),
            pool.submit(index.renumber),
        ]:
            future.result()
    assert {space.name for space in index.spaces} == {
        "original",
        "original-int8",
        "original-float16",
    }
    assert index.labels is not None


def test_a_change_within_another_is_refused(index: RoutingIndex) -> None:
    """A change within another is refused, since it would wait for itself."""
    with pytest.raises(RuntimeError, match="expected one change of an index at a time"):
        index.refine(progress=lambda *_: index.renumber())
    index.renumber()  # the next one is not blocked


@pytest.mark.parametrize(
    ("change", "space", "is_kept"),
    [
        ("refine", "original", False),
        ("renumber", "original", False),
        ("float16", "original", False),
        ("validate_with", "original", False),
        ("int8", "original", True),  # the original space stays
        ("learn", "original", None),
    ],
)
def test_a_setting_is_kept_where_it_was_measured(
    index: RoutingIndex,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    space: str,
    is_kept: bool | None,
) -> None:
    """A setting is kept only if its vectors, graph, space and queries are still those in use."""
    is_measured, may_end = threading.Event(), threading.Event()
    calibrate = current_module.calibrate

    def measure(*args: Any) -> Any:
        found = calibrate(*args)
        is_measured.set()
        assert may_end.wait(60)
        return found

    monkeypatch.setattr(current_module, "calibrate", measure)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(index.setting, 0.6, 4, space=space)
        assert is_measured.wait(60)
        validation, searcher = index.validation, index.searcher(space)
        CHANGES[change](index)
        if is_kept is None:
            is_kept = index.validation is validation and index.searcher(space) is searcher
        may_end.set()
        setting = future.result()
    settings = index._current.state.settings
    assert (settings.get((space, 4, 0.6, 1.0, "mean")) is setting) == is_kept


def test_a_setting_found_during_a_change_is_not_lost(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting measured during a change is kept if it is valid after the change."""
    compressed = changes.compressed

    def slowly(*args: Any) -> Any:
        after = compressed(*args)
        index.setting(0.6, k=4)
        return after

    monkeypatch.setattr(changes, "compressed", slowly)
    index.compress("int8")
    assert ("original", 4, 0.6, 1.0, "mean") in index._current.state.settings
    assert ("original", 5, 0.9, 1.0, "mean") in index._current.state.settings


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_follows_the_index(index: RoutingIndex, change: str) -> None:
    """A plan answers like the index before a change or after it, then like the index after it."""
    plan, other = index.plan(k=5, ef=20), index.plan(k=5, recall=0.9, n_threads=1)
    before = [index.search(QUERIES, k=5, ef=20), index.search(QUERIES, k=5, recall=0.9)]
    with meanwhile(lambda: plan(QUERIES), lambda: other(QUERIES)) as returned:
        CHANGES[change](index)
    after = [index.search(QUERIES, k=5, ef=20), index.search(QUERIES, k=5, recall=0.9)]
    for seen, old, new in zip(returned, before, after, strict=True):
        assert all(same_results(found, old) or same_results(found, new) for found in seen)
    assert same_results(plan(QUERIES), after[0])
    assert same_results(other(QUERIES), after[1])


def test_an_index_that_is_gone_leaves_its_plans(index: RoutingIndex) -> None:
    """A plan keeps its arrays alive after the index is deleted."""
    expected = index.search(QUERIES, k=5, ef=20)
    plan = index.plan(k=5, ef=20)
    index.renumber()
    del index
    noise = [
        np.full(VECTORS.shape, 7, np.float32) for _ in range(50)
    ]  # likely to reuse freed memory
    assert same_results(plan(QUERIES), expected)
    del noise
