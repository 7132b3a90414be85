"""The names of an index's ids, as arrays of an index directory.

Saved are three arrays: ids and sizes of names, and the text of all names one after another in
UTF-8. A save of what changed appends to them: the last row of an id holds, and a size of −1 means
that its name was taken away. Names of ids that the index does not have are neither written nor
read, so that a vector never gets the name of another one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.files.names import MAX_NAME_BYTES
from l2route.files.patches import Layout, Rows
from l2route.files.storage import StaleError
from l2route.state.arrays import optional_array, required_array
from l2route.state.forks import renew_in_children

SlotsOf = Callable[[NDArray[np.int64]], NDArray[Any]]
"""Gives the row of each id, −1 for ids that the index does not have."""
IDS, SIZES, TEXT = "names_ids", "names_sizes", "names_text"


def new_names() -> Labels:
    """No names, to be given later."""
    names = Labels()
    renew_in_children(names)
    return names


def arrays_of_names(names: Labels, slots_of: SlotsOf) -> dict[str, NDArray[Any]]:
    """The names of an index by the names of the arrays that hold them; nothing if there are none.

    Args:
        names: the names.
        slots_of: the rows of the index's ids.
    """
    pairs = list(names)
    ids = np.array([id_ for id_, _ in pairs], dtype=np.int64)
    is_known = slots_of(ids) >= 0 if len(ids) else np.zeros(0, dtype=np.bool_)
    if not is_known.any():
        return {}
    kept = [name for (_, name), keeps in zip(pairs, is_known.tolist(), strict=True) if keeps]
    return _packed(ids[is_known], kept)


def names_of(arrays: Mapping[str, NDArray[Any]], slots_of: SlotsOf) -> Labels:
    """The inverse of `arrays_of_names`; the arrays are not trusted.

    Args:
        arrays: all arrays of an index.
        slots_of: the rows of the index's ids.
    """
    names = new_names()
    ids = optional_array(arrays, IDS, "int64", 1)
    if ids is not None:
        last = dict(zip(ids.tolist(), _unpacked(arrays, len(ids)), strict=True))
        distinct = np.array(list(last), dtype=np.int64)
        is_known = slots_of(distinct) >= 0 if len(distinct) else distinct >= 0
        known = distinct[is_known]
        names.add([last[id_] for id_ in known.tolist()], known)
    names.take_changes()
    return names


def rows_of_names(
    names: Labels, changed: set[int] | None, layouts: Mapping[str, Layout], slots_of: SlotsOf
) -> dict[str, Rows]:
    """Rows to append to the saved arrays, by array; nothing if no name has changed.

    Args:
        names: the names.
        changed: ids whose names differ from the saved ones; None if that is not known.
        layouts: the saved arrays. Without those of names, names cannot be appended: a StaleError.
        slots_of: the rows of the index's ids.
    """
    if changed is None and (len(names) or IDS in layouts):
        raise StaleError("expected names that were saved before, got others")
    if not changed:
        return {}
    ids = np.array(sorted(changed), dtype=np.int64)
    known = (slots_of(ids) >= 0).tolist()
    present = [name if keeps else None for name, keeps in zip(names.names(ids), known, strict=True)]
    if IDS not in layouts:
        if any(present):
            raise StaleError("expected an index that was saved with names, got one without")
        return {}
    rows = {}
    for array, contents in _packed(ids, present).items():
        begin = layouts[array].shape[0]
        rows[array] = (np.arange(begin, begin + len(contents), dtype=np.int64), contents)
    return rows


def moved(names: Labels, before: NDArray[np.int64], after: NDArray[np.int64]) -> Labels:
    """The names under other ids.

    Args:
        names: the names.
        before: the ids of all vectors [n].
        after: the ids that the same vectors get [n].
    """
    others = new_names()
    others.add(names.names(before), after)
    return others


def _packed(ids: NDArray[np.int64], names: Iterable[str | None]) -> dict[str, NDArray[Any]]:
    """Arrays of names; None is a name that was taken away."""
    texts = [None if name is None else name.encode() for name in names]
    sizes = np.array([-1 if text is None else len(text) for text in texts], dtype=np.int64)
    joined = b"".join(text for text in texts if text is not None)
    return {IDS: ids, SIZES: sizes, TEXT: np.frombuffer(joined, np.uint8)}


def _unpacked(arrays: Mapping[str, NDArray[Any]], n: int) -> list[str | None]:
    """The inverse of `_packed`, without the ids."""
    sizes = required_array(arrays, SIZES, ("int64",), 1)
    text = required_array(arrays, TEXT, ("uint8",), 1)
    smallest, largest = int(sizes.min(initial=0)), int(sizes.max(initial=0))
    if len(sizes) != n or smallest < -1 or largest > MAX_NAME_BYTES:
        got = f"{len(sizes)} from {smallest} to {largest}"
        raise ValueError(f"expected {n} sizes of names from -1 to {MAX_NAME_BYTES}, got {got}")
    lengths = np.maximum(sizes, 0)
    if lengths.sum() != len(text):
        raise ValueError(f"expected {lengths.sum()} bytes of names, got {len(text)}")
    joined, ends = text.tobytes(), np.cumsum(lengths).tolist()
    pairs = zip(sizes.tolist(), ends, strict=True)
    return [joined[end - size : end].decode() if size >= 0 else None for size, end in pairs]
