"""Filters: which vectors of an index may be answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from l2route import _core

Words = NDArray[np.uint64]
"""A packed bitmap: bit v of word v // 64 is that of slot v."""


class Slots(Protocol):
    """The slots of an index, in which its vectors are, and their ids."""

    @property
    def n_slots(self) -> int:
        """Number of slots, unused ones included."""

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Id of the vector in each slot [n_slots], −1 for none; None for slot numbers."""

    @property
    def version(self) -> int:
        """Number that differs whenever `labels` was changed in place."""

    @property
    def is_living(self) -> bool:
        """Whether labels may become −1 at any time, so that searches have to look at them."""

    def slots_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Slots of the vectors with these ids [n]; −1 for ids that there are not."""


class _Evaluated(NamedTuple):
    """A filter as the slots of one moment have it."""

    n_slots: int
    labels: NDArray[np.int64] | None
    version: int
    words: Words
    core: _core.Filter

    def is_of(self, slots: Slots) -> bool:
        """Whether slots have the ids that they had when the filter was evaluated."""
        return (
            self.labels is slots.labels
            and self.version == slots.version
            and self.n_slots == slots.n_slots
        )


class Filter:
    """A set of vectors of an index, by their ids; any number of threads may share it.

    `a & b`, `a | b` and `~a` are filters too. A filter follows the index: a vector keeps passing
    when rows are renumbered, stops when it is deleted, and vectors added later pass `~a` but not
    `a`. It is packed into a bitmap when it is first used, and again when the index has changed.

    Made by `RoutingIndex.filter`.
    """

    __slots__ = ("_evaluate", "_evaluated")

    def __init__(self, evaluate: Callable[[Slots], Words]) -> None:
        self._evaluate = evaluate
        self._evaluated: _Evaluated | None = None

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter(lambda slots: self.words(slots) & other.words(slots))

    def __or__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter(lambda slots: self.words(slots) | other.words(slots))

    def __invert__(self) -> Filter:
        return Filter(lambda slots: ~self.words(slots) & _used(slots))

    def words(self, slots: Slots) -> Words:
        """The bitmap over the slots of an index."""
        return self._of(slots).words

    def core(self, slots: Slots) -> _core.Filter:
        """The filter of the core for the slots of an index."""
        return self._of(slots).core

    def count(self, slots: Slots) -> int:
        """Number of vectors that pass."""
        return self._of(slots).core.count

    def _of(self, slots: Slots) -> _Evaluated:
        known = self._evaluated  # one read: other threads may replace it
        if known is None or not known.is_of(slots):
            labels, version = slots.labels, slots.version
            words = self._evaluate(slots)
            core = _core.Filter(words, slots.n_slots, labels if slots.is_living else None)
            known = _Evaluated(slots.n_slots, labels, version, words, core)
            self._evaluated = known
        return known


def filter_of(where: object, slots: Slots) -> Filter:
    """Make a filter.

    Args:
        where: a boolean array over the rows of the index, or an array of ids.
        slots: the slots of the index.
    """
    if isinstance(where, Filter):
        return where
    given = np.asarray(where)
    if given.ndim != 1:
        expected = "a filter, a boolean array over rows or an array of ids"
        raise ValueError(f"expected {expected}, got shape {list(given.shape)}")
    if given.dtype.kind == "b":
        return _of_ids(_ids_of_mask(given, slots))
    if len(given) == 0:
        return _of_ids(np.zeros(0, dtype=np.int64))
    if given.dtype.kind not in "iu":
        raise ValueError(f"expected a filter of booleans or integer ids, got dtype {given.dtype}")
    ids = np.unique(given)
    if ids[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"expected ids of the index, got {ids[-1]}")
    ids = ids.astype(np.int64)
    unknown = slots.slots_of(ids) < 0
    if unknown.any():
        raise ValueError(f"expected ids of the index, got {ids[unknown][0]}")
    return _of_ids(ids)


def filters_of(where: object, slots: Slots) -> list[Filter]:
    """The filters of a search: none, one for all queries, or one for each.

    Args:
        where: None, whatever `filter_of` takes, or a list or tuple of such, one per query.
        slots: the slots of the index.
    """
    if where is None:
        return []
    if isinstance(where, (list, tuple)) and any(_is_several(each) for each in where):
        return [filter_of(each, slots) for each in where]
    return [filter_of(where, slots)]


def _is_several(item: object) -> bool:
    return isinstance(item, (Filter, Sequence)) or getattr(item, "ndim", 0) > 0


def _ids_of_mask(mask: NDArray[np.bool_], slots: Slots) -> NDArray[np.int64]:
    labels = slots.labels
    if slots.is_living and labels is not None:
        labels = ids_in(labels)
    n_rows = slots.n_slots if labels is None else len(labels)
    if len(mask) != n_rows:
        raise ValueError(f"expected a boolean array [{n_rows}], got [{len(mask)}]")
    rows = np.flatnonzero(mask)
    return rows if labels is None else np.sort(labels[rows])


def ids_in(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ids among the labels of slots, in their order; those of unused slots are −1."""
    labels = labels.copy()
    _, first = np.unique(labels, return_index=True)  # one being replaced is there twice
    ids: NDArray[np.int64] = labels[np.sort(first[labels[first] != -1])]
    return ids


def _of_ids(ids: NDArray[np.int64]) -> Filter:
    """The vectors with these ids, ascending."""

    def evaluate(slots: Slots) -> Words:
        found = slots.slots_of(ids)
        mask = np.zeros(slots.n_slots, dtype=np.bool_)
        mask[found[found >= 0]] = True
        return packed(mask)

    return Filter(evaluate)


def _used(slots: Slots) -> Words:
    """The slots that hold a vector."""
    labels = slots.labels
    return packed(np.ones(slots.n_slots, dtype=np.bool_) if labels is None else labels != -1)


def packed(mask: NDArray[np.bool_]) -> Words:
    """The bitmap of a boolean array."""
    padded = np.zeros(-(-len(mask) // 64) * 8, dtype=np.uint8)
    packed = np.packbits(mask, bitorder="little")
    padded[: len(packed)] = packed
    return padded.view("<u8").astype(np.uint64, copy=False)


def slots_by_label(
    labels: NDArray[np.int64] | None, n_slots: int, ids: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Slots of the vectors with these ids [n]; −1 for ids that there are not."""
    if labels is None:
        return np.where((ids >= 0) & (ids < n_slots), ids, -1)
    order = np.argsort(labels, kind="stable")
    places = np.minimum(np.searchsorted(labels, ids, sorter=order), len(order) - 1)
    found = order[places]
    return np.where((labels[found] == ids) & (ids != -1), found, -1)
