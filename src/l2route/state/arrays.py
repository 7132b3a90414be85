"""Arrays of an index directory by name, with the dtype and number of axes that they must have."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray


def required_array(
    arrays: Mapping[str, NDArray[Any]], name: str, dtypes: Sequence[str], n_axes: int
) -> NDArray[Any]:
    """Return the array of that name, or refuse its absence, dtype or number of axes."""
    if name not in arrays:
        raise ValueError(f"expected an array {name}, got {', '.join(arrays) or 'none'}")
    array = arrays[name]
    if array.dtype not in dtypes or array.ndim != n_axes:
        expected = f"{' or '.join(dtypes)} with {n_axes} axes"
        raise ValueError(f"expected {name} {expected}, got {array.dtype} {list(array.shape)}")
    return array


def optional_array(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, n_axes: int
) -> NDArray[Any] | None:
    """Return the array of that name, or None if there is none."""
    return required_array(arrays, name, (dtype,), n_axes) if name in arrays else None
