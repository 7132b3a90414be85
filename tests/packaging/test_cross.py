"""The core compiles without warnings by clang, for both processors and both systems."""

import subprocess
import sys
from pathlib import Path

import pytest

CROSS = Path(__file__).with_name("cross.py")


@pytest.mark.parametrize("target", ["x86_64-linux-gnu.2.28", "aarch64-macos.11.0"])
def test_it_compiles(target: str) -> None:
    """`make cross` has the other two pairs."""
    command = [sys.executable, str(CROSS), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{target}: ")
