"""Laws of JSON bodies: read as Python reads them, in a few times their bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route import _core

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(FLOATS, min_size=n, max_size=n), min_size=1, max_size=5)
)
OTHERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def read(body: bytes, most: int = 100) -> tuple[bytes, dict[str, Any]]:
    """What the core reads of a body."""
    found: tuple[bytes, dict[str, Any]] = _core.json_arrays(body, ["rows"], ["ids"], "names", most)
    return found


@given(
    ROWS | st.lists(FLOATS, max_size=5),
    st.lists(INTEGERS, max_size=5),
    st.lists(st.text(max_size=6), max_size=5),
    st.dictionaries(st.sampled_from(["a", "b", 'q"', "é"]), OTHERS),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_what_python_writes_is_read(
    rows: Any, ids: list[int], names: list[str], others: dict[str, Any], indent: Any, ascii_: bool
) -> None:
    """Numbers, texts and all other fields are those of `json`, whatever the layout."""
    whole = {**others, "rows": rows, "ids": ids, "names": names}
    body = json.dumps(whole, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    rest, arrays = read(body)
    assert json.loads(rest) == others
    expected = np.array(rows, dtype=np.float32)
    assert arrays["rows"].dtype == np.float32
    assert np.array_equal(arrays["rows"], expected)
    assert arrays["ids"].tolist() == ids
    spans = arrays["names"].reshape(-1, 2)
    assert [json.loads(body[begin:end]) for begin, end in spans] == names


@given(st.binary(max_size=80) | st.text('[]{},:"0123456789.eE+-\\ntrufals rowsidnamé', max_size=60))
def test_what_is_no_json_is_refused(text: bytes | str) -> None:
    """Any text is refused, or Python reads what is left of it."""
    body = text if isinstance(text, bytes) else f'{{"rows": {text}'.encode()
    try:
        rest, _ = read(body)
    except (SyntaxError, ValueError) as error:
        assert str(error).startswith("expected")  # noqa: PT017 # no error is right too
    else:
        rest.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ('{"rows": ["", ""]}', ValueError, 'rows of numbers, got \'"", ""]}\' at byte 10'),
        ('{"rows": [[1, 2], [3]]}', ValueError, "rows of one length, at least 1, got 2 and 1"),
        ('{"rows": [[1], 2]}', ValueError, "rows as rows of numbers, got '2]}'"),
        ('{"ids": [1.0]}', ValueError, "ids of whole numbers of 64 bits, got '1.0]}'"),
        ('{"ids": [9223372036854775808]}', ValueError, "ids of whole numbers of 64 bits"),
        ('{"rows": [01]}', SyntaxError, "JSON with ']', got '1]}'"),
        ('{"rows": [NaN]}', SyntaxError, "JSON with a value, got 'NaN]}'"),
        ('{"rows": [1], "rows": [2]}', ValueError, "rows once, got it twice"),
        ('{"names": ["a", "b", "c"]}', ValueError, "at most 2 names, got more"),
        ('{"a": ' + "[" * 99 + "]" * 99 + "}", ValueError, "at most 64 levels, got more"),
        ('{"rows": [1]} x', SyntaxError, "JSON with the end, got 'x'"),
        ("", SyntaxError, "JSON with '{', got the end"),
    ],
)
def test_faults_are_named(body: str, kind: type[Exception], message: str) -> None:
    """The error says what was expected, and what came where."""
    with pytest.raises(kind) as error:
        read(body.encode(), most=2)
    assert str(error.value).startswith(f"expected {message}")


BOMBS: dict[str, bytes] = {
    "texts": b'{"queries":[' + b'"",' * 3_000_000 + b'""]}',
    "zeros": b'{"queries":[' + b"0," * 5_000_000 + b"0]}",
    "rows": b'{"queries":[' + b"[0]," * 2_000_000 + b"[0]]}",
    "lists": b'{"queries":[' + b"[]," * 3_000_000 + b"[]]}",
    "ids": b'{"queries":[1],"where":[' + b"0," * 5_000_000 + b"0]}",
    "labels": b'{"vectors":[1],"labels":[' + b'"",' * 3_000_000 + b'""]}',
    "others": b'{"queries":[1],"x":[' + b"{}," * 3_000_000 + b"0]}",
    "fields": b"{" + b",".join(b'"%d":0' % i for i in range(1_000_000)) + b"}",
    "numbers": b'{"queries":[' + b"1" * 10_000_000 + b"]}",
}
"""Bodies of about 10 MB."""
MOST = 5
"""Bytes of memory for each byte of a body, the body not included. Measured: 4.0 for ids of two
bytes each (int64), 2.0 for such numbers (float32), 0 to 1 for what is refused."""
MEASURE = """
from fastapi import HTTPException
from l2route.serve.bodies import read_add, read_search
from l2route.serve.options import ServeOptions
from test_json_bodies import BOMBS, memory
def read(body):
    try:
        if body.startswith(b'{"vectors"'):
            read_add("application/json", body, ServeOptions())
        else:
            read_search("application/json", body, {}, 8, ServeOptions())
    except HTTPException as error:
        assert error.status_code == 422, error.detail
        assert len(error.detail) < 300
read(b'{"queries":[1]}')
for name, body in BOMBS.items():
    before = memory("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    read(body)
    print(name, (memory("VmHWM") - before) / len(body))
"""


def memory(kind: str) -> int:
    """Memory of this process in bytes: now (VmRSS), or the most since it was last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith(f"{kind}:"))
    return 1024 * int(line.split()[1])


def test_a_body_takes_a_few_times_its_bytes() -> None:
    """Whatever is in a JSON body, reading it takes at most `MOST` times its bytes."""
    command = [sys.executable, "-c", MEASURE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found.keys() == BOMBS.keys()
    assert max(map(float, found.values())) < MOST, found
