"""Vectors and metrics.

Distances are smaller for nearer vectors, whatever the metric:

* ``l2``: the squared Euclidean distance, as in faiss and hnswlib;
* ``ip``: the negative inner product −⟨q, v⟩;
* ``cosine``: 1 − cos(q, v), where the cosine with a zero vector is 0.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.data.columns import reader_of
from l2route.files.finite import first_nonfinite_row

Metric = Literal["l2", "ip", "cosine"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MAX_LENGTH = 2.0**57
"""Largest length of a vector for l2 and ip. Between such vectors all scores are finite: squared
distances are up to 2**116, and scores of codes, which are sums of products, up to 2**127."""


def check_metric(metric: str) -> Metric:
    """Refuse a name that is not that of a metric.

    Args:
        metric: ``l2``, ``ip`` or ``cosine``.

    Returns:
        The name.
    """
    if metric not in METRICS:
        raise ValueError(f"expected metric {', '.join(METRICS)}, got {metric!r}")
    return metric


def check_vectors(
    name: str, array: object, dim: int | None = None, *, may_be_empty: bool = False
) -> NDArray[np.float32]:
    """Check vectors given by a user, and convert them for the core.

    Args:
        name: Name in error messages, such as "base" or "queries".
        array: Real numbers [n, d], in anything that `as_array` reads.
        dim: The required d; None for any.
        may_be_empty: Whether n may be 0.

    Returns:
        C-contiguous float32 [n, d]; the given array itself if it is that already.
    """
    given = as_array(name, array)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"expected {name} of real numbers, got dtype {given.dtype}")
    if given.ndim != 2:
        expected = "*" if dim is None else dim
        raise ValueError(f"expected {name} [*, {expected}], got shape {list(given.shape)}")
    if dim is not None and given.shape[1] != dim:
        raise ValueError(f"expected {name} [*, {dim}], got [*, {given.shape[1]}]")
    if given.size == 0 and not (may_be_empty and given.shape[1]):
        raise ValueError(f"expected {name} [n, d] with n, d > 0, got {list(given.shape)}")
    vectors = given
    if given.dtype != np.float32 or not given.flags.c_contiguous:
        with np.errstate(over="ignore"):  # an overflow becomes inf, which is refused below
            vectors = np.ascontiguousarray(given, dtype=np.float32)
    row = first_nonfinite_row(vectors)
    if row is not None:
        raise ValueError(f"expected {name} to be finite float32, got NaN or inf in row {row}")
    return vectors


def as_array(name: str, given: object) -> NDArray[Any]:
    """Convert a user's input to an array; if numpy cannot, the error says why.

    Args:
        name: Name in error messages.
        given: An array; a tensor in main memory; lists of numbers, of lists or of arrays; a column
            or a table of Arrow, pandas or polars; or an object with DLPack's or Arrow's interface.

    Returns:
        An array of any type and shape, without a copy if possible.
    """
    if type(given) is np.ndarray and given.dtype.kind in "fiub":  # the shortest way
        return given
    reader = reader_of(given)
    try:
        return np.asarray(given) if reader is None else reader(name, given)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:  # other devices
        if str(error).startswith(f"expected {name} ") or str(error).startswith("expected dense"):
            raise
        kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
        dtype = f" of {given.dtype}" if hasattr(given, "dtype") else ""
        raise ValueError(
            f"expected {name} that numpy can read, got a {kind}{dtype}: {error}"
        ) from error


def check_lengths(name: str, vectors: NDArray[np.float32]) -> None:
    """Refuse vectors so long that distances between them would overflow a float.

    Args:
        name: Name in error messages.
        vectors: Finite vectors [n, d], to be compared by l2 or ip.
    """
    flat = vectors.reshape(-1)
    with np.errstate(over="ignore"):
        if np.dot(flat, flat) <= MAX_LENGTH**2:  # of the whole array, in one pass
            return
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if (lengths > MAX_LENGTH).any():
        row = int(np.argmax(lengths > MAX_LENGTH))
        raise ValueError(
            f"expected {name} of a length of at most {MAX_LENGTH:g}, "
            f"got {lengths[row]:g} in row {row}"
        )


def normalize(vectors: object) -> NDArray[np.float32]:
    """Scale vectors to unit length; zero vectors stay zero.

    Args:
        vectors: Real numbers [n, d].

    Returns:
        New float32 [n, d].
    """
    given = check_vectors("vectors", vectors)
    squares = np.einsum("ij,ij->i", given, given, dtype=np.float64)
    lengths = np.sqrt(squares)[:, None]  # [n, 1]; squares may under- or overflow float32
    unit = np.zeros_like(given)
    np.divide(given, lengths, out=unit, where=lengths > 0, casting="same_kind")
    return unit
