"""A living index in other processes: forked while it changes, spawned, and mapped."""

import multiprocessing
import os
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

from l2route import load
from l2route.files.leases import LEASES
from l2route.index import RoutingIndex
from living import Model, answers_after_changes, check_answers, check_structure

DIM = 8
RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((300, DIM)).astype(np.float32)


def child(index: RoutingIndex) -> int:
    """Use and change an index in a forked process: 0 if it obeys all laws."""
    check_structure(index)
    model = Model()
    ids = index.ids
    model.put(ids, index.vectors(ids))
    check_answers(index, model, VECTORS[:2])
    added = index.add(VECTORS[:5] + 1)
    model.put(added, VECTORS[:5] + 1)
    index.delete(added[:2])
    model.drop(added[:2])
    check_answers(index, model, VECTORS[:2])
    return 0


@pytest.mark.parametrize("n_forks", [15])
def test_a_fork_during_changes_is_whole(n_forks: int) -> None:
    """A process that is forked while threads change and search an index can do both."""
    index = RoutingIndex.build(VECTORS[:100])
    done = threading.Event()

    def change() -> None:
        rng = np.random.default_rng(1)
        while not done.is_set():
            ids = index.add(rng.standard_normal((7, DIM)).astype(np.float32), n_threads=1)
            index.update(ids[:3], VECTORS[:3], n_threads=1)
            index.delete(ids)

    def search() -> None:
        while not done.is_set():
            index.search(VECTORS[:50], 5, ef=50, n_threads=2)

    threads = [threading.Thread(target=call) for call in (change, search)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(n_forks):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    code = child(index)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
    check_structure(index)


def test_a_spawned_process_gets_a_copy() -> None:
    """An index that has lived can be sent to a spawned process, which changes its own copy."""
    index = RoutingIndex.build(VECTORS[:100])
    index.add(VECTORS[100:150])
    index.delete(np.arange(20, 40))
    ids = index.ids.tolist()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(answers_after_changes, (index, VECTORS[200:203]))
    assert index.ids.tolist() == ids
    assert there == answers_after_changes(index, VECTORS[200:203])


def test_a_mapped_index_is_changed_in_memory(tmp_path: Path) -> None:
    """A change of a mapped index leaves its files, and other maps of them, as they were."""
    RoutingIndex.build(VECTORS[:100]).save(tmp_path / "index")
    before = {file.name: file.read_bytes() for file in (tmp_path / "index").iterdir()}
    one, other = (load(tmp_path / "index", mmap=True) for _ in range(2))
    one.add(VECTORS[100:120])
    one.delete([0, 1])
    assert len(one) == 118
    after = {file.name: file.read_bytes() for file in (tmp_path / "index").iterdir()}
    assert {name: after[name] for name in after if name != LEASES} == before
    assert len(other) == 100
    assert other.search(VECTORS[0], 1, ef=50).ids[0, 0] == 0
    one.save()
    assert sorted(load(tmp_path / "index", mmap=True)) == sorted(one)
    assert other.search(VECTORS[0], 1, ef=50).ids[0, 0] == 0
