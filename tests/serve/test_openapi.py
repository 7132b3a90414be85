"""Laws of the OpenAPI document: the server does what it says, as schemathesis finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving import saved_index, server_of

N_EXAMPLES = 8
"""Of each operation and phase."""
KEY = "key"


@pytest.mark.parametrize("key", [None, KEY])
def test_schemathesis_finds_nothing(tmp_path: Path, key: str | None) -> None:
    """No status, body or header of an answer is against the document, with a key and without.

    A document cannot say which ids an index has, so valid requests may be refused.
    """
    path = saved_index(tmp_path / "index.l2r")
    options = ["--exclude-checks", "positive_data_acceptance", "--seed", "1", "--no-color"]
    if key is not None:
        options += ["--header", f"Authorization: Bearer {key}"]
    with server_of(path, "--save-seconds", "3600", key=key) as server:
        command = [Path(sys.executable).with_name("schemathesis"), "run"]
        document = f"{server.url}/openapi.json"
        done = subprocess.run(
            [*command, document, "--max-examples", str(N_EXAMPLES), *options],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr
        assert "Tested:" in done.stdout
        assert server.client.get("/health").status_code == 200
