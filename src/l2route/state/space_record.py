"""A routing space in an index directory: its arrays, and its entry in meta.json."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from l2route.search.space import ROW_TYPES, Codes, RoutingSpace
from l2route.state.arrays import optional_array, required_array


def arrays_of_space(i: int, space: RoutingSpace) -> dict[str, NDArray[Any]]:
    """The arrays of the i-th space, by the names of schema 1."""
    codes = space.codes
    arrays = {
        "rows": space.rows,
        "matrix": space.query_matrix,
        "bias": space.bias,
        "lowest": None if codes is None else codes.offset,
        "steps": None if codes is None else codes.scale,
    }
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
    }


def space_of(i: int, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RoutingSpace:
    """The i-th space of an index directory, from its entry and the arrays of the index."""
    return RoutingSpace(
        rows=required_array(arrays, f"space{i}_rows", ROW_TYPES, 2),
        codes=_codes_of(i, entry, arrays),
        inlined=bool(entry.get("inlined", False)),
        dim=int(entry["dim"]),
        scorer=entry["scorer"],
        query_matrix=optional_array(arrays, f"space{i}_matrix", "float32", 2),
        bias=optional_array(arrays, f"space{i}_bias", "float32", 1),
        name=str(entry["name"]),
        rerank=int(entry.get("rerank", 32)),
        origin=None if entry.get("origin") is None else float(entry["origin"]),
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
