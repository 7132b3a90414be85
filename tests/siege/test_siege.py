from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECONDS = 30
"""Of the siege; `make siege` takes ten minutes."""
TESTS = Path(__file__).parents[1]


def test_nobody_is_kept_out() -> None:
    """Under all attacks at once honest clients are answered, memory is bounded, nothing is lost."""
    command = [sys.executable, "-m", "siege.run", "--seconds", str(SECONDS)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS + 300, env=environment
    )
    assert (done.returncode, done.stdout[-5:]) == (0, "PASS\n"), done.stdout + done.stderr
