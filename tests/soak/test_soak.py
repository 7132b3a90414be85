from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 40
"""Of the soak; `make soak` takes ten minutes."""
TESTS = Path(__file__).parents[1]


def test_nothing_is_lost() -> None:
    """Whatever happens to processes that share an index, all that was acknowledged is there."""
    command = [sys.executable, "-m", "soak.run", "--seconds", str(SECONDS), "--rate", "5"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS + 400, env=environment
    )
    assert (done.returncode, done.stdout[-5:]) == (0, "PASS\n"), done.stdout + done.stderr
