"""What an index is made of, and how that is written and read."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_metric
from l2route.files.finite import first_nonfinite_row
from l2route.files.storage import write_index
from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BASE_TYPES, BaseVectors
from l2route.search.codes import LARGEST_CODES
from l2route.search.setting import Loss, Setting
from l2route.search.space import ROW_TYPES, Codes, RoutingSpace
from l2route.search.validation import Validation

Record = TypeVar("Record", Setting, Loss)


@dataclass(frozen=True, slots=True)
class Parts:
    """All that an index keeps."""

    base: BaseVectors
    graph: Graph
    spaces: tuple[RoutingSpace, ...]
    """Those beside the original one."""
    labels: NDArray[np.int64] | None
    """What answers call each vertex [n]; row numbers if not given."""
    validation: Validation | None
    """Queries that settings are measured on."""
    settings: tuple[Setting, ...]
    losses: tuple[Loss, ...]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything large, by name."""
        arrays: dict[str, NDArray[Any] | None] = {
            "vectors": self.base.rows,
            "neighbors": self.graph.neighbors,
            "entries": self.graph.entries,
            "labels": self.labels,
        }
        for i, layer in enumerate(self.graph.upper):
            arrays |= {f"layer{i}_vertices": layer.vertices, f"layer{i}_neighbors": layer.neighbors}
        for i, space in enumerate(self.spaces):
            arrays |= {
                f"space{i}_rows": space.rows,
                f"space{i}_matrix": space.query_matrix,
                f"space{i}_bias": space.bias,
                f"space{i}_lowest": None if space.codes is None else space.codes.offset,
                f"space{i}_steps": None if space.codes is None else space.codes.scale,
            }
        if self.validation is not None:
            arrays |= {
                "validation_queries": self.validation.queries,
                "validation_neighbors": self.validation.neighbors,
            }
        return {name: array for name, array in arrays.items() if array is not None}


def described(space: RoutingSpace) -> dict[str, Any]:
    """What there is to say of a space, beside its arrays."""
    return {
        "name": space.name,
        "dim": space.dim,
        "scorer": space.scorer,
        "dtype": str(space.rows.dtype),
        "code_bits": 8 if space.codes is None else space.codes.bits,
        "inlined": space.inlined,
        "origin": space.origin,
        "rerank": space.rerank,
    }


def write_parts(path: Path, parts: Parts) -> None:
    """Write an index into a directory; if that is cut off, what was there stays readable.

    What could not be read again is refused before anything is written.
    """
    _check_values(parts)
    meta = {
        "metric": parts.base.metric,
        "dim": parts.base.dim,
        "n_layers": len(parts.graph.upper),
        "spaces": [described(space) for space in parts.spaces],
        "settings": [asdict(setting) for setting in parts.settings],
        "losses": [asdict(loss) for loss in parts.losses],
    }
    write_index(path, meta, parts.arrays())


def assemble(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, verify: bool) -> Parts:
    """Put together what `write_parts` took apart, and trust nothing of it.

    Args:
        meta: what is said of the index.
        arrays: its arrays by name.
        verify: look at every element of every row.
    """
    layers = tuple(
        UpperLayer(arrays[f"layer{i}_vertices"], arrays[f"layer{i}_neighbors"])
        for i in range(int(meta["n_layers"]))
    )
    base = BaseVectors(
        _require(arrays, "vectors", BASE_TYPES, 2), int(meta["dim"]), check_metric(meta["metric"])
    )
    parts = Parts(
        base=base,
        graph=Graph(arrays["neighbors"], arrays["entries"], layers),
        spaces=tuple(_space(i, entry, arrays) for i, entry in enumerate(meta["spaces"])),
        labels=_optional(arrays, "labels", "int64", 1),
        validation=_validation(arrays, base),
        settings=tuple(_typed(Setting, entry) for entry in meta.get("settings", ())),
        losses=tuple(_typed(Loss, entry) for entry in meta.get("losses", ())),
    )
    if verify:
        _check_values(parts)
    return parts


def _typed(kind: type[Record], entry: Mapping[str, Any]) -> Record:
    """A record of plain values, each made what its field says."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        types = get_args(get_type_hints(kind)[field.name]) or (get_type_hints(kind)[field.name],)
        value = entry[field.name] if field.default is MISSING else entry.get(field.name)
        values[field.name] = None if value is None and NoneType in types else types[0](value)
    return kind(**values)


def _space(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RoutingSpace:
    return RoutingSpace(
        rows=_require(arrays, f"space{i}_rows", ROW_TYPES, 2),
        codes=_codes(i, entry, arrays),
        inlined=bool(entry.get("inlined", False)),
        dim=int(entry["dim"]),
        scorer=entry["scorer"],
        query_matrix=_optional(arrays, f"space{i}_matrix", "float32", 2),
        bias=_optional(arrays, f"space{i}_bias", "float32", 1),
        name=str(entry["name"]),
        rerank=int(entry.get("rerank", 32)),
        origin=None if entry.get("origin") is None else float(entry["origin"]),
    )


def _codes(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Codes | None:
    names = [name for name in (f"space{i}_lowest", f"space{i}_steps") if name in arrays]
    if not names:
        return None
    if len(names) < 2:
        raise ValueError(f"expected space{i}_lowest and space{i}_steps, got {names[0]} alone")
    offset, scale = (_require(arrays, name, ("float32",), 1) for name in names)
    return Codes(int(entry.get("code_bits", 8)), offset, scale)


def _validation(arrays: Mapping[str, NDArray[Any]], base: BaseVectors) -> Validation | None:
    queries = _optional(arrays, "validation_queries", "float32", 2)
    if queries is None:
        return None
    neighbors = _require(arrays, "validation_neighbors", ("int32",), 2)
    if queries.shape[1] != base.dim:
        raise ValueError(f"expected validation queries [*, {base.dim}], got {queries.shape}")
    low, high = int(neighbors.min(initial=0)), int(neighbors.max(initial=0))
    if low < 0 or high >= len(base.rows):
        got = f"{low} to {high}"
        raise ValueError(f"expected validation_neighbors in [0, {len(base.rows)}), got {got}")
    return Validation(queries, neighbors)


def _check_values(parts: Parts) -> None:
    """Look at every number: finite, padded with zeros, of the bits that codes have, distinct."""
    for name, array in parts.arrays().items():
        row = first_nonfinite_row(array.reshape(len(array), -1))
        if row is not None:
            raise ValueError(f"expected finite numbers in {name}, got NaN or inf in row {row}")
    rows = {"vectors": (parts.base.rows, parts.base.dim)}
    for i, space in enumerate(parts.spaces):
        if space.codes is None or space.codes.bits == 8:  # of four bits all values are codes
            rows[f"space{i}_rows"] = (space.rows, space.dim)
    for name, (array, dim) in rows.items():
        if array[:, dim:].any():
            raise ValueError(f"expected {name} padded with zeros beyond their dimension")
        if array.dtype == np.uint8 and array.max() > LARGEST_CODES[8]:
            got = array.max()
            raise ValueError(f"expected codes of at most {LARGEST_CODES[8]} in {name}, got {got}")
    if parts.labels is not None:
        _check_labels(parts.labels)


def _check_labels(labels: NDArray[np.int64]) -> None:
    ordered = np.sort(labels)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise ValueError(f"expected distinct labels, got {repeated[0]} more than once")
    if (labels == -1).any():
        raise ValueError("expected labels other than -1, which stands for no answer, got one")


def _optional(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, ndim: int
) -> NDArray[Any] | None:
    return _require(arrays, name, (dtype,), ndim) if name in arrays else None


def _require(
    arrays: Mapping[str, NDArray[Any]], name: str, dtypes: Sequence[str], ndim: int
) -> NDArray[Any]:
    array = arrays[name]
    if array.dtype not in dtypes or array.ndim != ndim:
        expected = " or ".join(dtypes)
        raise ValueError(f"expected {name} {expected} with {ndim} axes, got {array.dtype}")
    return array
