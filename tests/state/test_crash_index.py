"""Laws of an index whose process is killed: what was saved is there, and nothing is half done."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from crash import kill_repeatedly
from crash_index import DIM, names_of, set_at
from l2route.files.storage import META
from l2route.index import RoutingIndex, load
from living import Model, check_answers, check_structure
from saved_content import files_in, named_files

N_KILLS = int(os.environ.get("L2ROUTE_KILLS", "40"))
"""By `make crash` 300."""
QUERIES = np.random.default_rng(0).normal(size=(2, DIM)).astype(np.float32)


def holds(index: RoutingIndex, model: Model) -> bool:
    """Whether an index has the ids, names and vectors of a set."""
    names = index.names.names(model.ids)
    if sorted(index) != model.ids.tolist() or names != names_of(model.ids):
        return False
    if len(index.names) != sum(name is not None for name in names):
        return False
    expected = np.array([model.vectors[i] for i in model.ids.tolist()])
    return np.array_equal(index.vectors(model.ids), expected)


def test_a_killed_index_loses_nothing(tmp_path: Path) -> None:
    """After a kill at any moment the directory holds the set of the last save that returned.

    Or that of the save that was under way. Exhaustive searches of what was loaded equal brute
    force, and it can be changed further. The next save removes what the kills left.
    """
    path = tmp_path / "index"
    kinds: Counter[str] = Counter()

    def check(n_returned: int) -> int:
        try:
            index = load(path, mmap=n_returned % 2 == 0)
        except FileNotFoundError:
            assert n_returned == 0
            return 0
        possible = [n for n in (n_returned, n_returned + 1) if n and holds(index, set_at(n))]
        assert possible, f"expected the set {n_returned} or the next, got {sorted(index)}"
        model = set_at(possible[0])
        check_answers(index, model, QUERIES)
        added = index.add(QUERIES)
        model.put(added, QUERIES)
        check_structure(index)
        check_answers(index, model, QUERIES)
        kinds["patched" if json.loads((path / META).read_text()).get("patches") else "whole"] += 1
        return possible[0]

    last = kill_repeatedly("crash_index:live", path, check, N_KILLS)
    assert last > N_KILLS // 2  # writers come far
    assert kinds["patched"] > N_KILLS // 5
    assert kinds["whole"] > 1
    index = load(path)
    index.delete(index.ids[:1])
    index.save()
    assert files_in(path) == named_files(path)
