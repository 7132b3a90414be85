"""Interpreters of this machine, and environments with the package installed from wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that there are wheels for."""
SMOKE = Path(__file__).parent / "packaging" / "smoke.py"
"""The program that an installed package has to pass."""


def find_python(version: str) -> Path | None:
    """An interpreter of this version, on the path or of pyenv; None if there is none."""
    name = f"python{version}"
    candidates = [*sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/{name}"))]
    if (found := shutil.which(name)) is not None:
        candidates.insert(0, Path(found))
    for path in candidates:  # pyenv's shims exist for versions that are not selected, and fail
        command = [path, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return path
    return None


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with the package installed from wheels alone."""

    root: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def core(self) -> Path:
        """The file of the installed core."""
        (found,) = self.root.glob("lib/python*/site-packages/l2route/_core.*.so")
        return found

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its processes: programs of the environment only, so no compiler."""
        return os.environ | {"PATH": str(self.root / "bin"), "PYTHONPATH": "", "CC": "", "CXX": ""}

    def run(self, *words: str | Path, before: tuple[str, ...] = ()) -> str:
        """Run its interpreter outside the repository, and return what it prints.

        Args:
            *words: arguments of the interpreter.
            before: a program that runs the interpreter, such as an emulator.
        """
        command = [*before, str(self.python), *map(str, words)]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout


def make_environment(python: Path, root: Path, requirements: list[str]) -> Environment:
    """Make an environment and install requirements into it; sources are refused."""
    subprocess.run([python, "-m", "venv", root], check=True)
    environment = Environment(root)
    environment.run("-m", "pip", "install", "--quiet", "--only-binary", ":all:", *requirements)
    return environment
