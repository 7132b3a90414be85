"""Patches: changed rows of several arrays, packed into one array of bytes.

For each array, in the order of names, a patch holds the numbers of its changed rows (int64) and
then their new contents, both little-endian. Every block starts at a cache line. How many rows of an
array changed, and its length afterwards, are in the patch's table of parts; the rest follows from
the arrays, so that a patch and its arrays cannot disagree on dtypes or offsets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import CACHE_LINE

Rows = tuple[NDArray[np.int64], NDArray[Any]]
"""Row numbers [m], ascending, and the contents of these rows [m, …]."""
Part = dict[str, int]
"""The number of changed rows ("rows") and of all rows afterwards ("length") of an array."""
_ROW_NUMBER = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Patch:
    """Changed and new rows of arrays."""

    rows: Mapping[str, Rows]
    """By the name of the array; every row beyond the array's old length has to be among them."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """Rows of arrays afterwards, at least as many as before; other arrays keep their length."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The dtype and shape of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Layout":
        """The layout of an array."""
        return cls(array.dtype, array.shape)

    def resized(self, length: int) -> "Layout":
        """This layout with another number of rows."""
        return Layout(self.dtype, (length, *self.shape[1:]))

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype of rows in patches."""
        return self.dtype.newbyteorder("<")

    @property
    def n_bytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize


Layouts = Mapping[str, Layout]


def pack(patch: Patch, layouts: Layouts) -> tuple[NDArray[np.uint8], dict[str, Part]]:
    """Pack the rows of a patch.

    Args:
        patch: the rows.
        layouts: the arrays before the patch.

    Returns:
        The packed rows [n_bytes], and the parts by array, without arrays that do not change.
    """
    for name in {*patch.rows, *patch.lengths} - layouts.keys():
        raise ValueError(f"expected an array among {sorted(layouts)}, got {name}")
    parts = {}
    for name, layout in layouts.items():
        _check_rows_given(name, patch, layout)
        if name in patch.rows and len(patch.rows[name][0]):
            length = int(patch.lengths.get(name, layout.shape[0]))
            parts[name] = {"rows": len(patch.rows[name][0]), "length": length}
    packed = np.zeros(packed_size(parts, layouts), dtype=np.uint8)
    for name, numbers, contents in _blocks(packed, parts, layouts):
        numbers[:], contents[:] = patch.rows[name]
    return packed, parts


def unpack(
    packed: NDArray[np.uint8], parts: Mapping[str, Part], layouts: Layouts
) -> dict[str, Rows]:
    """The inverse of `pack`; nothing but the layouts is trusted.

    Args:
        packed: packed rows.
        parts: the parts by array, as parsed from JSON.
        layouts: the arrays before the patch.

    Returns:
        The rows by array, views of `packed`.
    """
    for name, part in parts.items():
        _check_part(name, part, layouts)
    expected = packed_size(parts, layouts)
    if packed.dtype != np.uint8 or packed.shape != (expected,):
        got = f"{packed.dtype} {list(packed.shape)}"
        raise ValueError(f"expected packed rows uint8 [{expected}], got {got}")
    unpacked = {}
    for name, numbers, contents in _blocks(packed, parts, layouts):
        _check_numbers(name, numbers, layouts[name].shape[0], parts[name]["length"])
        unpacked[name] = (numbers, contents)
    return unpacked


def packed_size(parts: Mapping[str, Part], layouts: Layouts) -> int:
    """Bytes of packed rows."""
    sizes = (_block_sizes(part["rows"], layouts[name]) for name, part in parts.items())
    return sum(_padded(numbers) + _padded(contents) for numbers, contents in sizes)


def _blocks(
    packed: NDArray[np.uint8], parts: Mapping[str, Part], layouts: Layouts
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[Any]]]:
    """Name, row numbers and contents of each part, as views of the packed rows."""
    at = 0
    for name in sorted(parts):
        layout = layouts[name].resized(parts[name]["rows"])
        n_numbers, n_contents = _block_sizes(parts[name]["rows"], layout)
        numbers = packed[at : at + n_numbers].view(_ROW_NUMBER)
        at += _padded(n_numbers)
        contents = np.ndarray(layout.shape, layout.stored, packed[at : at + n_contents].data)
        at += _padded(n_contents)
        yield name, numbers, contents


def _block_sizes(n_rows: int, layout: Layout) -> tuple[int, int]:
    """Bytes of the numbers and of the contents of rows."""
    return n_rows * _ROW_NUMBER.itemsize, layout.resized(n_rows).n_bytes


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE


def _check_rows_given(name: str, patch: Patch, layout: Layout) -> None:
    """Refuse rows of a patch that do not fit the array before it."""
    if name not in patch.rows and name not in patch.lengths:
        return
    if not layout.shape:
        raise ValueError(f"expected an array with rows, got the single value {name}")
    none = np.empty(0, np.int64), np.empty((0, *layout.shape[1:]), layout.dtype)
    numbers, contents = patch.rows.get(name, none)
    if numbers.dtype != np.int64 or numbers.ndim != 1:
        got = f"{numbers.dtype} {list(numbers.shape)}"
        raise ValueError(f"expected row numbers of {name} int64 [*], got {got}")
    expected = layout.resized(len(numbers))
    if (contents.dtype.name, contents.shape) != (expected.dtype.name, expected.shape):
        got = f"{contents.dtype} {list(contents.shape)}"
        shape = list(expected.shape)
        raise ValueError(f"expected rows of {name} {expected.dtype} {shape}, got {got}")
    before = layout.shape[0]
    _check_numbers(name, numbers, before, int(patch.lengths.get(name, before)))


def _check_part(name: str, part: object, layouts: Layouts) -> None:
    """Refuse an entry of a table of parts that is no part."""
    if name not in layouts or not layouts[name].shape:
        raise ValueError(f"expected parts of arrays with rows, got one of {name!r}")
    values = [part.get("rows"), part.get("length")] if isinstance(part, dict) else [part]
    if len(values) != 2 or any(type(value) is not int or value < 1 for value in values):
        raise ValueError(f"expected numbers of rows of {name}, got {part!r}")


def _check_numbers(name: str, numbers: NDArray[np.int64], before: int, after: int) -> None:
    """Refuse row numbers that are not ascending or out of range, and new rows without content.

    Args:
        name: the name of the array.
        numbers: numbers of the rows that a patch changes.
        before: rows of the array before the patch.
        after: rows of the array after it.
    """
    if after < before:
        raise ValueError(f"expected {name} to keep its {before} rows, got {after}")
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= after):
        got = f"{numbers.min()} to {numbers.max()}"
        raise ValueError(f"expected row numbers of {name} in [0, {after}), got {got}")
    if not (numbers[1:] > numbers[:-1]).all():
        at = int(np.argmin(numbers[1:] > numbers[:-1]))
        got = f"{numbers[at]} before {numbers[at + 1]}"
        raise ValueError(f"expected ascending row numbers of {name}, got {got}")
    n_new = len(numbers) - int(np.searchsorted(numbers, before))
    if n_new != after - before:
        got = f"{n_new} of {after - before}"
        raise ValueError(f"expected every new row of {name} from {before} on, got {got}")
