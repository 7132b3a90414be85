"""Laws of the core's type stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import l2route


def test_stubs_are_those_of_the_core(tmp_path: Path) -> None:
    """`_core.pyi` is what nanobind generates for the built core; `make stubs` writes it."""
    fresh = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-m", "l2route._core", "-o", str(fresh)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    kept = Path(l2route.__file__).with_name("_core.pyi")
    assert kept.read_text() == fresh.read_text()
