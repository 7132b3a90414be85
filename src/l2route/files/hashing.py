"""The hash of arrays: checksums of index files, cache keys and checkpoints."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16


def hash_arrays(text: str, *arrays: NDArray[Any]) -> str:
    """Hash a text and the dtype, shape and content of arrays.

    The checksums in the meta.json of saved indexes are hashes of one array with an empty text.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES)
    for array in arrays:
        add_array(digest, array)
    return digest.hexdigest()


def add_array(digest: "hashlib.blake2b", array: NDArray[Any]) -> None:
    """Add the dtype, shape and content of an array to a hash."""
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
