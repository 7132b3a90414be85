"""Laws of the notebooks: they are their scripts, and they run."""

import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from documents import MINUTES, ROOT, cut_short

NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))
SECONDS = 120
"""Time limit of a cell."""


def sources(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_there_is_a_notebook_for_each_reader() -> None:
    """The search engineer and the researcher have a notebook each."""
    assert {path.stem for path in NOTEBOOKS} >= {"search_engineer", "researcher"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script(path: Path) -> None:
    """A notebook has the cells of the script of the same name; docs/notebooks.py writes it."""
    script, notebook = jupytext.read(path.with_suffix(".py")), nbformat.read(path, as_version=4)
    assert sources(notebook) == sources(script)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_printed(path: Path) -> None:
    """Every code cell was run once, in order, without an error; the file is small."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert "error" not in {output.output_type for output in outputs}
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """A notebook runs from top to bottom in a new kernel, on less data."""
    notebook = jupytext.read(path.with_suffix(".py"))
    for cell in notebook.cells:
        cell.source = smaller(cell.source)
    code = "".join(cell.source for cell in notebook.cells)
    assert "2_000" in code
    assert f"minutes={MINUTES}" in code or "steps=5" in code
    client = NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


def smaller(source: str) -> str:
    """Code of a cell with less data and less learning."""
    for number in ("20_000", "10_000", "5_000", "4_000"):
        source = source.replace(f"={number}", "=2_000")
    return re.sub(r"\bsteps=\d+", "steps=5", cut_short(source))
