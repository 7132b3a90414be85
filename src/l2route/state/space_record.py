"""A routing space in an index directory: its arrays, and its entry in meta.json."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.codes import COMPRESSIONS
from l2route.search.gain import Gain
from l2route.search.rotation import Rotation
from l2route.search.space import ROW_TYPES, Codes, RoutingSpace
from l2route.search.vertex_map import FilterMap, LinearMap, Projection, VertexMap
from l2route.state.arrays import optional_array, required_array

FILTER_ARRAYS = {
    "axes": 2,
    "means": 1,
    "lengths": 1,
    "weights": 2,
    "singles": 2,
    "out": 2,
    "shift": 1,
    "bias": 1,
}
"""Arrays of a filter's vertex map that it always has, with their numbers of axes."""
LINEAR_ARRAYS = {"matrix": 2, "centre": 1, "shift": 1, "tilt": 1}
"""Arrays of a linear vertex map, with their numbers of axes."""
PROJECTED = re.compile(rf"(original|pca\d+)(-({'|'.join(COMPRESSIONS)}))?")
"""Names of spaces whose vertices are mapped as queries are. Version 0.1 did not say which are."""


def arrays_of_space(i: int, space: RoutingSpace) -> dict[str, NDArray[Any]]:
    """The arrays of the i-th space, by the names of schema 1."""
    codes = space.codes
    arrays = {
        "rows": space.rows,
        "matrix": space.query_matrix,
        "signs": None if space.rotation is None else space.rotation.signs,
        "centre": space.centre,
        "bias": space.bias,
        "lowest": None if codes is None else codes.offset,
        "steps": None if codes is None else codes.scale,
    }
    by = space.vertex_map
    if isinstance(by, LinearMap):
        arrays |= {f"linear_{name}": getattr(by, name) for name in LINEAR_ARRAYS}
        arrays["linear_constants"] = np.array([by.lengthwise, by.constant])
    if isinstance(by, FilterMap):
        names = (*FILTER_ARRAYS, "lengthwise")
        arrays |= {f"filter_{name}": getattr(by, name) for name in names}
        arrays["filter_constant"] = np.array([by.constant])
        if len(by.hubs):
            arrays |= {"filter_hubs": by.hubs, "filter_hub_shifts": by.hub_shifts}
    return {f"space{i}_{name}": array for name, array in arrays.items() if array is not None}


def entry_of_space(space: RoutingSpace) -> dict[str, Any]:
    """The plain values of a space, without its arrays, for meta.json and `RoutingIndex.info`."""
    return {
        "name": space.name,
        "dim": space.dim,
        "scorer": space.scorer,
        "dtype": str(space.rows.dtype),
        "code_bits": 8 if space.codes is None else space.codes.bits,
        "inlined": space.inlined,
        "origin": space.origin,
        "rerank": space.rerank,
        "rerank_grows": space.rerank_grows,
        "model": space.model,
        "gain": None if space.gain is None else asdict(space.gain),
        "vertex_map": _name_of(space.vertex_map),
        "n_rotated": None if space.rotation is None else space.rotation.n_in,
    }


def _name_of(vertex_map: VertexMap | None) -> str | None:
    if vertex_map is None:
        return None
    if isinstance(vertex_map, LinearMap):
        return "linear"
    return "filter" if isinstance(vertex_map, FilterMap) else "projection"


def space_of(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RoutingSpace:
    """The i-th space of an index directory, from its entry and the arrays of the index."""
    return RoutingSpace(
        rows=required_array(arrays, f"space{i}_rows", ROW_TYPES, 2),
        codes=_codes_of(i, entry, arrays),
        inlined=bool(entry.get("inlined", False)),
        dim=int(entry["dim"]),
        scorer=entry["scorer"],
        query_matrix=optional_array(arrays, f"space{i}_matrix", "float32", 2),
        centre=optional_array(arrays, f"space{i}_centre", "float32", 1),
        bias=optional_array(arrays, f"space{i}_bias", "float32", 1),
        name=str(entry["name"]),
        rerank=int(entry.get("rerank", 32)),
        rerank_grows=bool(entry.get("rerank_grows", False)),
        origin=None if entry.get("origin") is None else float(entry["origin"]),
        model=None if entry.get("model") is None else str(entry["model"]),
        gain=_gain_of(entry.get("gain")),
        vertex_map=_vertex_map_of(i, entry, arrays),
        rotation=_rotation_of(i, entry, arrays),
    )


def _rotation_of(
    i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Rotation | None:
    signs = optional_array(arrays, f"space{i}_signs", "int8", 2)
    return None if signs is None else Rotation(signs, int(entry["n_rotated"]))


def _gain_of(entry: Mapping[str, Any] | None) -> Gain | None:
    if entry is None:
        return None
    return Gain(
        k=int(entry["k"]),
        budget=int(entry["budget"]),
        routing=int(entry["routing"]),
        rerank=int(entry["rerank"]),
        pca_dim=None if entry["pca_dim"] is None else int(entry["pca_dim"]),
        plain=float(entry["plain"]),
        learned=float(entry["learned"]),
    )


def _vertex_map_of(
    i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> VertexMap | None:
    """The vertex map of the i-th space; by its name where version 0.1 wrote it."""
    is_projected = PROJECTED.fullmatch(str(entry["name"])) is not None
    kind = entry.get("vertex_map", "projection" if is_projected else None)
    if kind == "projection":
        return Projection()
    if kind is None:
        return None
    if kind == "linear":
        return _linear_map_of(i, arrays)
    if kind != "filter":
        raise ValueError(f"expected a vertex map projection, linear or filter, got {kind!r}")
    return _filter_map_of(i, arrays)


def _linear_map_of(i: int, arrays: Mapping[str, NDArray[Any]]) -> LinearMap:
    parts = {
        name: required_array(arrays, f"space{i}_linear_{name}", ("float32",), n_axes)
        for name, n_axes in LINEAR_ARRAYS.items()
    }
    constants = required_array(arrays, f"space{i}_linear_constants", ("float64",), 1)
    if constants.shape != (2,):
        raise ValueError(f"expected space{i}_linear_constants [2], got {list(constants.shape)}")
    return LinearMap(**parts, lengthwise=float(constants[0]), constant=float(constants[1]))


def _filter_map_of(i: int, arrays: Mapping[str, NDArray[Any]]) -> FilterMap:
    parts = {
        name: required_array(arrays, f"space{i}_filter_{name}", ("float32",), n_axes)
        for name, n_axes in FILTER_ARRAYS.items()
    }
    lengthwise = arrays.get(f"space{i}_filter_lengthwise")
    if lengthwise is not None and lengthwise.dtype != "float32":
        raise ValueError(f"expected space{i}_filter_lengthwise float32, got {lengthwise.dtype}")
    (constant,) = required_array(arrays, f"space{i}_filter_constant", ("float64",), 1)
    n, dim = parts["out"].shape
    empty = (np.zeros((0, n), dtype=np.float32), np.zeros((0, dim + 1), dtype=np.float32))
    hubs = optional_array(arrays, f"space{i}_filter_hubs", "float32", 2)
    shifts = optional_array(arrays, f"space{i}_filter_hub_shifts", "float32", 2)
    return FilterMap(
        **parts,
        lengthwise=lengthwise,
        constant=float(constant),
        hubs=empty[0] if hubs is None else hubs,
        hub_shifts=empty[1] if shifts is None else shifts,
    )


def _codes_of(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Codes | None:
    """Bits, offset and scale of the codes of the i-th space; None if its rows are floats."""
    names = [name for name in (f"space{i}_lowest", f"space{i}_steps") if name in arrays]
    if not names:
        return None
    if len(names) < 2:
        raise ValueError(f"expected space{i}_lowest and space{i}_steps, got {names[0]} alone")
    offset, scale = (required_array(arrays, name, ("float32",), 1) for name in names)
    return Codes(int(entry.get("code_bits", 8)), offset, scale)
