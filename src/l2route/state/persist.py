"""An index state in a directory: `write_state` and `read_state`, each the inverse of the other."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_metric
from l2route.files.finite import first_nonfinite_row
from l2route.files.memory import aligned
from l2route.files.meta import Saved
from l2route.files.storage import read_index, write_index
from l2route.graph.graph import Graph, UpperLayer, check_entries, check_neighbors
from l2route.search.base import BASE_TYPES, BaseVectors
from l2route.search.codes import LARGEST_CODES
from l2route.search.setting import Loss, Setting
from l2route.search.space import RoutingSpace
from l2route.search.stopping import StoppingRule
from l2route.search.validation import Validation
from l2route.search.vertex_map import FilterMap
from l2route.state.arrays import optional_array, required_array
from l2route.state.buffers import PER_SLOT
from l2route.state.entry_record import table_of
from l2route.state.living import Counts, Living
from l2route.state.names import arrays_of_names, names_of
from l2route.state.report import checked_report
from l2route.state.snapshot import reopened, served
from l2route.state.space_record import entry_of_space, space_of
from l2route.state.state import IndexState, check_labels

Arrays = Mapping[str, NDArray[Any]]
Record = TypeVar("Record", Setting, Loss, Counts)
DAMAGED = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
"""Errors that a damaged or forged directory can cause."""


def write_state(
    path: Path,
    state: IndexState,
    seen: Saved | None = None,
    *,
    is_rebuilt: bool = True,
    overwrite: bool = False,
    held: bool | None = None,
) -> Saved:
    """Write a state into a directory; if that is interrupted, the index there stays readable.

    A state with values that `read_state` would refuse is refused before anything is written. Other
    arguments are those of `write_index`.
    """
    arrays = arrays_of(state)
    check_values(state, arrays)
    how = {"is_rebuilt": is_rebuilt, "overwrite": overwrite}
    return write_index(path, meta_of(state), arrays, seen, held=held, **how)


def read_state(path: Path, *, mmap: bool = False, verify: bool = True) -> tuple[IndexState, Saved]:
    """Read and check a state that `write_state` wrote; the directory is not trusted.

    Args:
        path: the directory.
        mmap: map the arrays instead of reading them.
        verify: compare every array with its checksum, and check every value.

    Returns:
        The state, and what the directory holds.
    """
    meta, arrays, saved = read_index(path, mmap=mmap, verify=verify)
    try:
        state = state_of(meta, arrays)
        if verify:
            check_values(state, arrays_of_rows(state))
        return state, saved
    except DAMAGED as error:
        got = f"no {error} in its meta.json" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: expected an intact index, got {got}") from error


def arrays_of(state: IndexState) -> dict[str, NDArray[Any]]:
    """All arrays of a state, by the names under which they are saved.

    Of a living index they are those of the slots in use, dead and free ones included.
    """
    return arrays_of_rows(state) | arrays_of_names(state.names, state.slots_of)


def arrays_of_rows(state: IndexState) -> dict[str, NDArray[Any]]:
    """All arrays of a state but those of names."""
    arrays = state.arrays()
    if state.labels is None:
        arrays["labels"] = np.arange(state.graph.n_vertices, dtype=np.int64)
    if state.living is not None:
        n = state.living.store.n_slots
        arrays = {
            name: array[:n] if PER_SLOT.fullmatch(name) else array for name, array in arrays.items()
        }
    return arrays


def meta_of(state: IndexState) -> dict[str, Any]:
    """Everything but the arrays, for meta.json."""
    living = state.living
    past = {"next_id": state.next_id} if living is None else {"living": asdict(living.counts)}
    return {
        **past,
        "metric": state.base.metric,
        "dim": state.base.dim,
        "n_layers": len(state.graph.upper),
        "spaces": [entry_of_space(space) for space in state.spaces[1:]],
        "settings": [asdict(setting) for setting in state.settings.values()],
        "losses": [asdict(loss) for loss in state.losses.values()],
        "rules": [rule.entry() for rule in state.rules.values()],
        **({} if state.report is None else {"report": state.report}),
    }


def state_of(meta: Mapping[str, Any], arrays: Arrays) -> IndexState:
    """The inverse of `meta_of` and `arrays_of`."""
    state = _state_without_names(meta, arrays)
    rules = [StoppingRule.of_entry(entry) for entry in meta.get("rules", ())]
    unknown = [rule.space for rule in rules if rule.space not in state.searchers]
    if unknown:
        raise ValueError(f"expected stopping rules of the index's spaces, got {unknown[0]!r}")
    by_key = {rule.key: rule for rule in rules}
    report = meta.get("report")
    return replace(
        state,
        names=names_of(arrays, state.slots_of),
        rules=by_key,
        report=None if report is None else checked_report(report),
    )


def _state_without_names(meta: Mapping[str, Any], arrays: Arrays) -> IndexState:
    rows = required_array(arrays, "vectors", BASE_TYPES, 2)
    base = BaseVectors(rows, int(meta["dim"]), check_metric(meta["metric"]))
    spaces = [space_of(i, entry, arrays) for i, entry in enumerate(meta["spaces"])]
    labels = optional_array(arrays, "labels", "int64", 1)
    validation = _validation_of(arrays, base)
    settings = [_record_of(Setting, entry) for entry in meta.get("settings", ())]
    losses = [_record_of(Loss, entry) for entry in meta.get("losses", ())]
    counts = _counts_of(meta, labels)
    if labels is None or counts is None or not _matters(counts, labels, spaces, validation):
        if labels is not None and len(labels) == len(rows) and _are_numbers(labels):
            labels = None
        graph = _graph_of(int(meta["n_layers"]), arrays)
        state = IndexState.of(base, graph, spaces, labels, validation, settings, losses)
        next_id = meta.get("next_id", 0) if counts is None else counts.next_id
        return replace(state, next_id=_checked_next_id(next_id))
    living = _living_of(arrays, base, spaces, labels, counts)
    state = served(living)
    return replace(
        state,
        validation=validation,
        settings={each.key: each for each in settings},
        losses={loss.space: loss for loss in losses},
    )


def _are_numbers(labels: NDArray[np.int64]) -> bool:
    return bool((labels == np.arange(len(labels))).all())


def _counts_of(meta: Mapping[str, Any], labels: NDArray[np.int64] | None) -> Counts | None:
    """What has happened to an index that was living when it was saved; None for another."""
    if "living" not in meta:
        return None
    counts = _record_of(Counts, meta["living"])
    if min(asdict(counts).values()) < 0:
        raise ValueError(f"expected counts of at least 0, got {meta['living']}")
    largest_id = -1 if labels is None else int(labels.max(initial=-1))
    return replace(counts, next_id=max(_checked_next_id(counts.next_id), largest_id + 1))


def _checked_next_id(value: Any) -> int:
    if not 0 <= int(value) <= np.iinfo(np.int64).max + 1:
        raise ValueError(f"expected a next_id from 0 to 2**63, got {value!r}")
    return int(value)


def _matters(
    counts: Counts,
    labels: NDArray[np.int64],
    spaces: list[RoutingSpace],
    validation: Validation | None,
) -> bool:
    """Whether an index that was living has to be one again, because a constant one says less."""
    is_learned = any(isinstance(space.vertex_map, FilterMap) for space in spaces)
    return (
        not len(labels)
        or bool((labels == -1).any())
        or (validation is not None and counts.n_changed > 0)
        or (is_learned and counts.n_since_encoded > 0)
    )


def _living_of(
    arrays: Arrays,
    base: BaseVectors,
    spaces: list[RoutingSpace],
    labels: NDArray[np.int64],
    counts: Counts,
) -> Living:
    """A living index; some slots may be dead or free."""
    n = len(base.rows)
    check_labels(labels, n, may_be_missing=True)
    neighbors = required_array(arrays, "neighbors", ("int32",), 2)
    if len(neighbors) != n or any(len(space.rows) != n for space in spaces):
        lengths = [len(neighbors), *(len(space.rows) for space in spaces)]
        raise ValueError(f"expected {n} lists and routing vectors, got {lengths}")
    return reopened(base, spaces, _slots_graph(arrays, neighbors), labels, counts)


def _slots_graph(arrays: Arrays, neighbors: NDArray[np.int32]) -> Graph:
    """The graph of a living index, of which every id is checked; it may have no entry points."""
    n = len(neighbors)
    entries = required_array(arrays, "entries", ("int32",), 1)
    entries, table = np.ascontiguousarray(entries[entries != -1]), table_of(arrays)
    if n:
        check_neighbors("neighbors", neighbors, n)
    if len(entries):
        check_entries(entries, n)
    if table is not None:
        table.check_fits(n)
    no_entry = np.full(1, -1, dtype=np.int32)
    return Graph.with_room(aligned(neighbors), entries if len(entries) else no_entry, table)


def _graph_of(n_layers: int, arrays: Arrays) -> Graph:
    def ids(name: str, n_axes: int) -> NDArray[np.int32]:
        return required_array(arrays, name, ("int32",), n_axes)

    upper = tuple(
        UpperLayer(ids(f"layer{i}_vertices", 1), ids(f"layer{i}_neighbors", 2))
        for i in range(n_layers)
    )
    entries = ids("entries", 1)  # padded if the index was living
    n_entries = len(entries) - int((entries[::-1] != -1).argmax()) if len(entries) else 0
    entries = np.ascontiguousarray(entries[:n_entries])
    return Graph(ids("neighbors", 2), entries, upper, table_of(arrays))


def _record_of(kind: type[Record], entry: Mapping[str, Any]) -> Record:
    """A dataclass of plain values from its dict, each value converted to its field's type."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        types = get_args(get_type_hints(kind)[field.name]) or (get_type_hints(kind)[field.name],)
        default = entry[field.name] if field.default is MISSING else field.default
        value = entry.get(field.name, default)
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


def check_values(state: IndexState, arrays: Arrays) -> None:
    """Refuse values that are not finite, padding that is not zero, and codes out of range.

    Args:
        state: the state.
        arrays: its arrays.
    """
    for name, array in arrays.items():
        row = first_nonfinite_row(array.reshape(len(array), -1)) if array.size else None
        if row is not None:
            raise ValueError(f"expected finite numbers in {name}, got NaN or inf in row {row}")
    rows = {"vectors": (arrays["vectors"], state.base.dim)}
    for i, space in enumerate(state.spaces[1:]):
        if space.codes is None or space.codes.bits == 8:  # any byte is valid codes of fewer bits
            rows[f"space{i}_rows"] = (arrays[f"space{i}_rows"], space.dim)
    for name, (array, dim) in rows.items():
        padding = np.flatnonzero(array[:, dim:].any(axis=1))
        if len(padding):
            got = f"other values in row {padding[0]}"
            raise ValueError(f"expected {name} padded with zeros beyond dimension {dim}, got {got}")
        if array.dtype == np.uint8 and array.max(initial=0) > LARGEST_CODES[8]:
            got = array.max()
            raise ValueError(f"expected codes of at most {LARGEST_CODES[8]} in {name}, got {got}")
