"""An index state in a directory: `write_state` and `read_state`, each the inverse of the other."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_metric
from l2route.files.finite import first_nonfinite_row
from l2route.files.storage import read_index, write_index
from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BASE_TYPES, BaseVectors
from l2route.search.codes import LARGEST_CODES
from l2route.search.setting import Loss, Setting
from l2route.search.validation import Validation
from l2route.state.arrays import optional_array, required_array
from l2route.state.space_record import entry_of_space, space_of
from l2route.state.state import IndexState

Arrays = Mapping[str, NDArray[Any]]
Record = TypeVar("Record", Setting, Loss)
DAMAGED = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""Errors that a damaged or forged directory can cause."""


def write_state(path: Path, state: IndexState) -> None:
    """Write a state into a directory; if that is interrupted, the index there stays readable.

    A state with values that `read_state` would refuse is refused before anything is written.
    """
    _check_values(state)
    write_index(path, _meta_of(state), state.arrays())


def read_state(path: Path, *, mmap: bool = False, verify: bool = True) -> IndexState:
    """Read and check a state that `write_state` wrote; the directory is not trusted.

    Args:
        path: the directory.
        mmap: map the arrays instead of reading them.
        verify: compare every array with its checksum, and check every value.
    """
    meta, arrays, _ = read_index(path, mmap=mmap, verify=verify)
    try:
        state = _state_of(meta, arrays)
        if verify:
            _check_values(state)
        return state
    except DAMAGED as error:
        got = f"no {error} in its meta.json" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: expected an intact index, got {got}") from error


def _meta_of(state: IndexState) -> dict[str, Any]:
    """Everything but the arrays, for meta.json."""
    return {
        "metric": state.base.metric,
        "dim": state.base.dim,
        "n_layers": len(state.graph.upper),
        "spaces": [entry_of_space(space) for space in state.spaces[1:]],
        "settings": [asdict(setting) for setting in state.settings.values()],
        "losses": [asdict(loss) for loss in state.losses.values()],
    }


def _state_of(meta: Mapping[str, Any], arrays: Arrays) -> IndexState:
    """The inverse of `_meta_of` and `IndexState.arrays`."""
    rows = required_array(arrays, "vectors", BASE_TYPES, 2)
    base = BaseVectors(rows, int(meta["dim"]), check_metric(meta["metric"]))
    return IndexState.of(
        base,
        _graph_of(int(meta["n_layers"]), arrays),
        [space_of(i, entry, arrays) for i, entry in enumerate(meta["spaces"])],
        optional_array(arrays, "labels", "int64", 1),
        _validation_of(arrays, base),
        [_record_of(Setting, entry) for entry in meta.get("settings", ())],
        [_record_of(Loss, entry) for entry in meta.get("losses", ())],
    )


def _graph_of(n_layers: int, arrays: Arrays) -> Graph:
    def ids(name: str, n_axes: int) -> NDArray[np.int32]:
        return required_array(arrays, name, ("int32",), n_axes)

    upper = tuple(
        UpperLayer(ids(f"layer{i}_vertices", 1), ids(f"layer{i}_neighbors", 2))
        for i in range(n_layers)
    )
    return Graph(ids("neighbors", 2), ids("entries", 1), upper)


def _record_of(kind: type[Record], entry: Mapping[str, Any]) -> Record:
    """A dataclass of plain values from its dict, each value converted to its field's type."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        types = get_args(get_type_hints(kind)[field.name]) or (get_type_hints(kind)[field.name],)
        value = entry[field.name] if field.default is MISSING else entry.get(field.name)
        values[field.name] = None if value is None and NoneType in types else types[0](value)
    return kind(**values)


def _validation_of(arrays: Arrays, base: BaseVectors) -> Validation | None:
    queries = optional_array(arrays, "validation_queries", "float32", 2)
    if queries is None:
        return None
    neighbors = required_array(arrays, "validation_neighbors", ("int32",), 2)
    if queries.shape[1] != base.dim:
        raise ValueError(f"expected validation queries [*, {base.dim}], got {list(queries.shape)}")
    low, high = int(neighbors.min(initial=0)), int(neighbors.max(initial=0))
    if low < 0 or high >= len(base.rows):
        got = f"{low} to {high}"
        raise ValueError(f"expected validation_neighbors in [0, {len(base.rows)}), got {got}")
    return Validation(queries, neighbors)


def _check_values(state: IndexState) -> None:
    """Refuse values that are not finite, padding that is not zero, and codes out of range."""
    for name, array in state.arrays().items():
        row = first_nonfinite_row(array.reshape(len(array), -1))
        if row is not None:
            raise ValueError(f"expected finite numbers in {name}, got NaN or inf in row {row}")
    rows = {"vectors": (state.base.rows, state.base.dim)}
    for i, space in enumerate(state.spaces[1:]):
        if space.codes is None or space.codes.bits == 8:  # any byte is two valid codes of 4 bits
            rows[f"space{i}_rows"] = (space.rows, space.dim)
    for name, (array, dim) in rows.items():
        padding = np.flatnonzero(array[:, dim:].any(axis=1))
        if len(padding):
            got = f"other values in row {padding[0]}"
            raise ValueError(f"expected {name} padded with zeros beyond dimension {dim}, got {got}")
        if array.dtype == np.uint8 and array.max() > LARGEST_CODES[8]:
            got = array.max()
            raise ValueError(f"expected codes of at most {LARGEST_CODES[8]} in {name}, got {got}")
