"""A writer for `crash.kill_repeatedly` that changes an index, and the sets that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.index import RoutingIndex, load
from living import Model, Vectors

CYCLE = 30
"""States after which all vectors are deleted and others are added."""
COMPACTED = 7
"""Every seventh state is compact."""
N, DIM = 150, 6
Change = tuple[str, NDArray[np.int64], Vectors]
"""The name of a method, and the ids and vectors that it is called with."""


def changes_at(number: int, model: Model) -> list[Change]:
    """The changes between the state before and the state with this number.

    Args:
        number: of the state.
        model: the set before them, which they change.
    """
    rng = np.random.default_rng(number)
    is_first = (number - 1) % CYCLE == 0
    changes: list[Change] = []

    def change(kind: str, ids: NDArray[np.int64], n_vectors: int) -> None:
        vectors = rng.normal(size=(n_vectors, DIM)).astype(np.float32)
        changes.append((kind, ids, vectors))
        if kind == "delete":
            model.drop(ids)
        else:
            model.put(ids, vectors)

    some = model.ids if is_first else rng.permutation(model.ids)[: int(rng.integers(0, 12))]
    if len(some):  # nothing random is drawn for a first state, which depends on none before it
        change("delete", some, 0)
    n_added = N if is_first else int(rng.integers(1, 8))
    change("add", 1000 * number + np.arange(n_added), n_added)
    n_updated = int(rng.integers(0, 6))
    if n_updated:
        change("update", rng.permutation(model.ids)[:n_updated], n_updated)
    return changes


def set_at(number: int) -> Model:
    """The set of the state with a number, from 1 on."""
    model = Model()
    for each in range(number - (number - 1) % CYCLE, number + 1):
        changes_at(each, model)
    return model


def names_of(ids: NDArray[np.int64]) -> list[str | None]:
    """The names of ids in every state that has them; some have none."""
    return [f"name of {id_}" if id_ % 3 else None for id_ in ids.tolist()]


def apply(index: RoutingIndex, changes: list[Change]) -> None:
    """Change an index."""
    for kind, ids, vectors in changes:
        if kind == "delete":
            index.delete(ids)
        elif kind == "add":
            index.add(vectors, ids, names=names_of(ids), n_threads=1)
        else:
            index.update(ids, vectors, n_threads=1)


def live(path: Path, at: int) -> Iterator[None]:
    """Change an index and save it, again and again: as patches, folded and compact."""
    model = set_at(at) if at else Model()
    index = load(path, mmap=at % 2 == 0) if at else None
    for number in count(at + 1):
        changes = changes_at(number, model)
        if index is None:
            (_, ids, vectors), *changes = changes
            index = RoutingIndex.build(vectors, ids=ids, degree=8, n_threads=1)
            index.compress("int8", space="original")
            index.name(Labels.of(names_of(ids), ids))
        apply(index, changes)
        if number % COMPACTED == 0:
            index.compact()
        if at == 0 and number == 1:
            index.save(path)
        else:
            index.save()
        yield


def add_and_save(path: Path, begin: int, n: int, loaded: Barrier) -> None:
    """Load an index and, once the others have too, add a vector and save n times."""
    index = load(path)
    loaded.wait()
    for i in range(n):
        index.add(np.full((1, index.dim), i), [begin + i])
        index.save()
