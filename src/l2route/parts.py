"""What an index is made of, and how that is written and read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from l2route.calibration import Loss, Setting, Validation
from l2route.compression import LARGEST_CODE
from l2route.data import check_metric
from l2route.graph import Graph, UpperLayer
from l2route.search import BASE_TYPES, ROW_TYPES, BaseVectors, RoutingSpace
from l2route.storage import write_index

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
                f"space{i}_steps": space.steps,
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
        "rerank": space.rerank,
    }


def write_parts(path: Path, parts: Parts) -> None:
    """Write an index into a directory; if that is cut off, what was there stays readable."""
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
        _check_rows(parts)
    return parts


def _typed(kind: type[Record], entry: Mapping[str, Any]) -> Record:
    """A record of plain values, each made what its field says."""
    types = get_type_hints(kind)
    return kind(**{field.name: types[field.name](entry[field.name]) for field in fields(kind)})


def _space(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RoutingSpace:
    return RoutingSpace(
        rows=_require(arrays, f"space{i}_rows", ROW_TYPES, 2),
        steps=_optional(arrays, f"space{i}_steps", "float32", 1),
        dim=int(entry["dim"]),
        scorer=entry["scorer"],
        query_matrix=_optional(arrays, f"space{i}_matrix", "float32", 2),
        bias=_optional(arrays, f"space{i}_bias", "float32", 1),
        name=str(entry["name"]),
        rerank=int(entry.get("rerank", 32)),
    )


def _validation(arrays: Mapping[str, NDArray[Any]], base: BaseVectors) -> Validation | None:
    queries = _optional(arrays, "validation_queries", "float32", 2)
    if queries is None:
        return None
    neighbors = _require(arrays, "validation_neighbors", ("int32",), 2)
    if queries.shape[1] != base.dim:
        raise ValueError(f"expected validation queries [*, {base.dim}], got {queries.shape}")
    return Validation(queries, neighbors)


def _check_rows(parts: Parts) -> None:
    rows = [(parts.base.rows, parts.base.dim)] + [(space.rows, space.dim) for space in parts.spaces]
    for array, dim in rows:
        if array[:, dim:].any():
            raise ValueError("expected rows padded with zeros beyond their dimension")
        if array.dtype == np.uint8 and array.max() > LARGEST_CODE:
            raise ValueError(f"expected codes of at most {LARGEST_CODE}, got {array.max()}")


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
