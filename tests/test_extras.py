"""Laws of optional dependencies: messages name extras that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import l2route
from l2route.extras import install

PACKAGE = Path(l2route.__file__).parent
ROOT = Path(__file__).parents[1]
CALL = re.compile(r"""\binstall\(["']([\w-]+)["']\)""")


def test_messages_name_extras_that_there_are() -> None:
    """Every extra named in a message exists in pyproject.toml."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    named = {extra for text in texts for extra in CALL.findall(text)}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named >= {"train", "plots", "hdf5", "demo", "bench", "sklearn", "llama-index"}
    assert named <= set(known["optional-dependencies"])


def test_messages_and_readme_install_alike() -> None:
    """The README has the install command of messages, and the package spells it once.

    The images for benchmark runners have commands of their own.
    """
    assert install("bench") in (ROOT / "README.md").read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py"):
        if path.name not in ("extras.py", "annbench.py"):
            assert "pip install" not in path.read_text(encoding="utf-8"), path
