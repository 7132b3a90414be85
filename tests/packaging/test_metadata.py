"""Laws of the package's metadata: one version, and the same platforms everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import l2route
from wheel_environments import VERSIONS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ARCHITECTURES = {"linux": "x86_64,aarch64", "macos": "x86_64,arm64"}
PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def normalized(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_version_is_written_once() -> None:
    """The version is in pyproject.toml alone; the package and the command read it from there."""
    written = PROJECT["project"]["version"]
    assert l2route.__version__ == version("l2route") == written
    assert "version:" not in (ROOT / "CITATION.cff").read_text().replace("cff-version:", "")
    assert not re.search(r"project\(.*VERSION", (ROOT / "CMakeLists.txt").read_text())
    for path in (ROOT / "src").rglob("*.py"):
        assert f'"{written}"' not in path.read_text(encoding="utf-8"), path


def test_versions_of_python_agree() -> None:
    """Classifiers, the oldest version allowed and the stable ABI match the wheels' versions."""
    project = PROJECT["project"]
    prefix = "Programming Language :: Python :: 3."
    listed = [each.removeprefix(prefix) for each in project["classifiers"] if prefix in each]
    assert [f"3.{minor}" for minor in listed] == list(VERSIONS)
    assert project["requires-python"] == f">={VERSIONS[0]}"
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py311"


@pytest.mark.parametrize("platform", ARCHITECTURES)
def test_cibuildwheel_builds_for_every_version(platform: str) -> None:
    """The settings of cibuildwheel are valid, and name every version of Python."""
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    options = ["--platform", platform, "--archs", ARCHITECTURES[platform], str(ROOT)]
    answer = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    pythons = [f"cp{each.replace('.', '')}" for each in VERSIONS]
    kind = {"linux": "manylinux", "macos": "macosx"}[platform]
    machines = ARCHITECTURES[platform].split(",")
    expected = {f"{python}-{kind}_{machine}" for python in pythons for machine in machines}
    assert set(answer.stdout.split()) == expected


def test_what_is_installed_has_hashes() -> None:
    """constraints.txt has hashes of every package, and `make` installs nothing without them."""
    text = (ROOT / "constraints.txt").read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PINNED.findall(text)) > 250
    assert all("--hash=sha256:" in entry for entry in entries)
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install (.*)", makefile)
    unchecked = [each for each in installs if "--require-hashes" not in each]
    ours = ("--no-deps", "--upgrade pip", "dist/l2route-", '".[arrow]"')  # and an optional target
    assert all(any(word in each for word in ours) for each in unchecked), unchecked


def test_tools_that_build_wheels_are_pinned() -> None:
    """constraints.txt has a version of every tool and build requirement."""
    pinned = {normalized(name) for name in PINNED.findall((ROOT / "constraints.txt").read_text())}
    wanted = [
        *PROJECT["project"]["optional-dependencies"]["wheels"],
        *PROJECT["build-system"]["requires"],
    ]
    assert {normalized(re.split(r"[>=; ]", each)[0]) for each in wanted} <= pinned
