"""Filters: which vectors of an index may be answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import as_array

Words = NDArray[np.uint64]
"""A packed bitmap: bit v of word v // 64 is that of slot v."""
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


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

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the vectors, in the order of their slots [n]."""

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """Whether each slot holds a vector [n_slots]."""

    def slots_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Slots of the vectors with these ids [n]; −1 for ids that there are not."""

    def added_since(self, version: int) -> NDArray[np.int64] | None:
        """Ids added since a version; None if there were other changes, or if it is not known."""


class _Evaluated(NamedTuple):
    """A filter as the slots of one moment have it."""

    n_slots: int
    labels: NDArray[np.int64] | None
    version: int
    words: Words
    core: _core.Filter

    def is_of(self, slots: Slots) -> bool:
        """Whether the slots are those that the filter was evaluated for, changed or not."""
        return self.labels is slots.labels and self.n_slots == slots.n_slots


class Filter:
    """A set of vectors of an index, by their ids; any number of threads may share it.

    `a & b`, `a | b` and `~a` are filters too. A filter follows the index: a vector keeps passing
    when rows are renumbered, stops when it is deleted, and vectors added later pass `~a` but not
    `a`. It is packed into a bitmap when it is first used, and again when the index has changed,
    unless vectors were added that do not pass.

    Made by `RoutingIndex.filter`.
    """

    __slots__ = ("_evaluate", "_evaluated", "_has")

    def __init__(self, evaluate: Callable[[Slots], Words], has: Callable[[Ids], Mask]) -> None:
        self._evaluate, self._has = evaluate, has
        self._evaluated: _Evaluated | None = None

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter(
            lambda slots: self.words(slots) & other.words(slots),
            lambda ids: self._has(ids) & other._has(ids),
        )

    def __or__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return Filter(
            lambda slots: self.words(slots) | other.words(slots),
            lambda ids: self._has(ids) | other._has(ids),
        )

    def __invert__(self) -> Filter:
        return Filter(lambda slots: ~self.words(slots) & _used(slots), lambda ids: ~self._has(ids))

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
        labels, version = slots.labels, slots.version
        if known is not None and known.is_of(slots):
            if known.version == version:
                return known
            added = slots.added_since(known.version)
            if added is not None and not self._has(added).any():  # slots they took had no bit
                known = known._replace(version=version)
                self._evaluated = known
                return known
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
    given = as_array("where", where)
    if given.ndim != 1:
        expected = "a filter, a boolean array over rows or an array of ids"
        raise ValueError(f"expected {expected}, got shape {list(given.shape)}")
    if given.dtype.kind == "b":
        return filter_of_ids(_ids_of_mask(given, slots))
    if len(given) == 0:
        return filter_of_ids(np.zeros(0, dtype=np.int64))
    if given.dtype.kind not in "iu":
        raise ValueError(f"expected a filter of booleans or integer ids, got dtype {given.dtype}")
    ids = np.unique(given)
    if ids[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"expected ids of the index, got {ids[-1]}")
    ids = ids.astype(np.int64)
    unknown = slots.slots_of(ids) < 0
    if unknown.any():
        raise ValueError(f"expected ids of the index, got {ids[unknown][0]}")
    return filter_of_ids(ids)


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
    is_column = hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__")
    return isinstance(item, (Filter, Sequence)) or is_column or getattr(item, "ndim", 0) > 0


def _ids_of_mask(mask: Mask, slots: Slots) -> Ids:
    ids = slots.ids
    if len(mask) != len(ids):
        raise ValueError(f"expected a boolean array [{len(ids)}], got [{len(mask)}]")
    return np.sort(ids[mask])


def filter_of_ids(ids: Ids) -> Filter:
    """The vectors with these ids, ascending; ids that the index does not have pass nothing."""

    def evaluate(slots: Slots) -> Words:
        found = slots.slots_of(ids)
        mask = np.zeros(slots.n_slots, dtype=np.bool_)
        mask[found[found >= 0]] = True
        return packed(mask)

    def has(asked: Ids) -> Mask:
        places = np.searchsorted(ids, asked)
        known = places < len(ids)
        known[known] = ids[places[known]] == asked[known]
        return known

    return Filter(evaluate, has)


def _used(slots: Slots) -> Words:
    """The slots that hold a vector."""
    return packed(slots.is_used)


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
