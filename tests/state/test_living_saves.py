"""Laws of saves of an index that changes: what changed is written, and nothing is lost."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from crash_index import add_and_save
from failing_disks import failing
from l2route.data.truth import exact_neighbors
from l2route.files.storage import META, read_index, write_index
from l2route.index import RoutingIndex, load
from living import check_structure

RNG = np.random.default_rng(0)
LARGE = RNG.normal(size=(5000, 32)).astype(np.float32)
VECTORS = LARGE[:500, :8].copy()


def sizes_in(path: Path) -> dict[str, int]:
    """Bytes of the arrays in a directory by file."""
    return {file.name: file.stat().st_size for file in path.glob("*.npy")}


def small() -> RoutingIndex:
    """A small index."""
    return RoutingIndex.build(VECTORS, degree=8)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_save_after_a_change_is_small(tmp_path: Path, is_loaded: bool) -> None:
    """After a small change `save` writes a patch of less than 2% of the index.

    That holds for an index that was built and saved, and for one that was loaded.
    """
    index = RoutingIndex.build(LARGE, degree=16)
    index.save(tmp_path)
    whole = sizes_in(tmp_path)
    if is_loaded:
        index = load(tmp_path)
    for change in (
        lambda: index.add(LARGE[:1] + 1),
        lambda: index.delete([17]),
        lambda: index.update([18], LARGE[:1] - 1),
    ):
        before = sizes_in(tmp_path)
        change()
        index.save()
        new = sizes_in(tmp_path).items() - before.items()
        assert before.items() <= sizes_in(tmp_path).items()
        assert 0 < sum(size for _, size in new) < 0.02 * sum(whole.values())
    assert sorted(load(tmp_path)) == sorted(index)


def test_a_save_elsewhere_is_whole(tmp_path: Path) -> None:
    """A save to another directory needs nothing of the first; the next save goes there."""
    index = small()
    index.save(tmp_path / "a")
    index.add(VECTORS[:3] + 1)
    index.save(tmp_path / "b")
    assert json.loads((tmp_path / "b" / META).read_text())["patches"] == []
    index.delete([0])
    index.save()
    assert len(load(tmp_path / "a")) == 500
    assert sorted(load(tmp_path / "b")) == sorted(index) == list(range(1, 503))


def test_a_first_save_needs_a_path(tmp_path: Path) -> None:
    """`save` without a path is refused before the index was saved or loaded, and only then."""
    index = small()
    for change in (lambda: None, lambda: index.add(VECTORS[:1])):
        change()
        with pytest.raises(ValueError, match="neither saved nor loaded, got none"):
            index.save()
    index.save(tmp_path)
    index.save()
    assert len(load(tmp_path)) == 501


REWORKS: dict[str, Callable[[RoutingIndex], object]] = {
    "refine": lambda index: index.refine(),
    "compact": lambda index: index.compact(),
    "renumber": lambda index: index.renumber(),
    "compress": lambda index: index.compress("int8"),
    "validate": lambda index: index.validate_with(VECTORS[:300] + 0.1),
}


@pytest.mark.parametrize("rework", REWORKS)
def test_a_reworked_index_knows_its_directory(tmp_path: Path, rework: str) -> None:
    """`save` without a path writes an index that was reworked between changes where it was."""
    index = small()
    index.save(tmp_path)
    index.add(VECTORS[:2] + 1)
    REWORKS[rework](index)
    index.delete([3])
    index.save()
    loaded = load(tmp_path)
    assert sorted(loaded) == sorted(index) == [0, 1, 2, *range(4, 502)]
    assert list(loaded._current.state.searchers) == list(index._current.state.searchers)
    np.testing.assert_array_equal(loaded.vectors(loaded.ids), index.vectors(loaded.ids))


def test_more_entries_than_a_living_index_has(tmp_path: Path) -> None:
    """An index with many entries is saved whole when it begins to change."""
    index = RoutingIndex.build(VECTORS, degree=8, entry=list(range(100)))
    index.save(tmp_path)
    index.add(VECTORS[:1] + 1)
    index.save()
    assert len(load(tmp_path)) == 501


def test_an_index_saved_without_labels(tmp_path: Path) -> None:
    """An index whose directory has no labels is saved whole when it begins to change."""
    small().save(tmp_path)
    meta, arrays, _ = read_index(tmp_path)
    del arrays["labels"]
    write_index(tmp_path, meta, arrays, overwrite=True)
    index = load(tmp_path)
    index.add(VECTORS[:1] + 1)
    index.save()
    assert sorted(load(tmp_path)) == list(range(501))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_failing_save_loses_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_loaded: bool
) -> None:
    """After a save that failed at any step, the next one writes all changes."""
    index = small()
    index.save(tmp_path)
    if is_loaded:
        index = load(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")
    n_failed = 0
    for n_steps in range(40):
        index.add(VECTORS[:2] + n_steps + 1)
        index.delete(index.ids[:1])
        index.update(index.ids[-3:-2], VECTORS[:1] - n_steps)
        with failing(monkeypatch, n_steps, full):
            try:
                index.save()
            except OSError as error:
                assert error is full  # noqa: PT017 # late steps do not fail
                n_failed += 1
        index.delete(index.ids[:1])
        index.save()
        loaded = load(tmp_path, mmap=n_steps % 2 == 0)
        assert sorted(loaded) == sorted(index)
        np.testing.assert_array_equal(loaded.vectors(index.ids), index.vectors(index.ids))
        check_structure(loaded)
    assert n_failed > 5


def test_two_processes_save_to_one_directory(tmp_path: Path) -> None:
    """Each save leaves what both processes have saved so far."""
    small().save(tmp_path)
    spawn = get_context("spawn")
    loaded = spawn.Barrier(2)
    processes = [
        spawn.Process(target=add_and_save, args=(tmp_path, begin, 40, loaded))
        for begin in (1000, 2000)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        ids = load(tmp_path).ids
        added = ids[ids >= 1000]
        counts = [int((added // 1000 == each).sum()) for each in (1, 2)]
        expected = [*range(1000, 1000 + counts[0]), *range(2000, 2000 + counts[1])]
        assert sorted(added.tolist()) == expected
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(load(tmp_path)) == 580


@pytest.mark.parametrize("is_deleted", [False, True])
def test_validation_queries_follow_saved_changes(tmp_path: Path, is_deleted: bool) -> None:
    """True neighbours of validation queries are those among the vectors that were loaded."""
    index = small()
    queries = RNG.normal(size=(300, 8)).astype(np.float32)
    index.validate_with(queries)
    index.setting(0.9, k=5)
    index.save(tmp_path)
    index.add(queries)
    if is_deleted:
        index.delete(np.arange(200))
        index.add(queries[:200] + 0.1)
    index.save()
    loaded = load(tmp_path)
    assert loaded.validation is not None
    truth = exact_neighbors(loaded.base.vectors(), queries, 10, "l2")
    np.testing.assert_array_equal(loaded.validation.neighbors[:, :10], truth.ids)
    setting = loaded.setting(0.9, k=5)
    found = loaded.search(queries, 5, recall=0.9)
    expected = loaded.ids[truth.ids[:, :5]]
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(found.ids, expected, strict=True)])
    assert recall == pytest.approx(setting.recall)
    assert recall >= 0.9


def test_ids_of_deleted_vectors_stay_unused(tmp_path: Path) -> None:
    """The next id follows the largest so far, also after a repair, a rework, a save and a copy."""
    index = small()
    index.add(VECTORS[:1], [10_000])
    index.delete([10_000])
    index.compact()
    for path in (tmp_path / "a", tmp_path / "b"):
        index.save(path)
        index = load(path)
        index.refine()
        (added,) = index.add(VECTORS[:1])
        index.delete([added])
    assert added == 10_002
