"""Laws of npy bodies: whatever shape a header says, the answer is no server error."""

from __future__ import annotations

import pytest
from fastapi import HTTPException

from l2route.serve.npy import read_npy


def with_shape(shape: str, data: bytes = b"") -> bytes:
    """A npy body with a header that says this shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "shape",
    [
        "(0, 2**70)",
        f"(0, {2**70})",
        f"({2**70}, 0)",
        f"(0, {2**63})",
        "(True, 16)",
        "(16, False)",
        "(-1, 16)",
        "(1.0, 16)",
        "('a',)",
        str((1,) * 71),
        str((1,) * 3),
        "()",
        "(" * 200,
    ],
)
def test_odd_shapes_are_refused(shape: str) -> None:
    """Axes that are no numbers, too long or too many are the fault of the client."""
    for data in (b"", bytes(64)):
        with pytest.raises(HTTPException) as refusal:
            read_npy(with_shape(shape, data))
        assert refusal.value.status_code == 400
        assert refusal.value.detail.startswith("expected")
        assert len(refusal.value.detail) < 300


def test_plain_shapes_are_read() -> None:
    """One axis or two, also without rows."""
    assert read_npy(with_shape("(2, 8)", bytes(64))).shape == (2, 8)
    assert read_npy(with_shape("(16,)", bytes(64))).shape == (16,)
    assert read_npy(with_shape("(0, 384)")).shape == (0, 384)
