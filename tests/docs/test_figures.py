"""Laws of the pictures: they can be drawn again, and every page has those that it shows."""

import re
import subprocess
import sys
from pathlib import Path

from documents import ROOT

IMAGES = ROOT / "docs/images"


def test_every_figure_can_be_drawn_again(tmp_path: Path) -> None:
    """`docs/figures.py` draws every SVG of docs/images but that of a build, and no other."""
    command = [sys.executable, str(ROOT / "docs/figures.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in tmp_path.iterdir()}
    assert len(drawn) > 5
    by_a_build = {"build.svg"}  # drawn by `l2route report`
    assert drawn == {path.name for path in IMAGES.glob("*.svg")} - by_a_build


def test_every_picture_is_shown() -> None:
    """Every picture of docs/images is in some document."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w.]+)", page.read_text())}
    assert {path.name for path in IMAGES.iterdir()} <= shown


def test_every_picture_is_small() -> None:
    """No drawing has more than 200 kB, no other picture more than 400 kB."""
    for path in IMAGES.iterdir():
        assert path.stat().st_size <= (200_000 if path.suffix == ".svg" else 400_000), path
