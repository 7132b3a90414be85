"""Make the notebooks of examples/ from the scripts of the same name, with the outputs of a run.

    python docs/notebooks.py                    # all
    python docs/notebooks.py search_engineer

A notebook and its script are a pair of jupytext: edit the script, then run this.
"""

import argparse
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 300
"""Time limit of a cell."""
KEPT = ("image/png", "text/plain", "text/html")
"""Kinds of output that are kept, beside printed text: those that a page can show."""


def paired() -> list[str]:
    """Names of the scripts that have a notebook."""
    scripts = sorted(EXAMPLES.glob("*.py"))
    return [path.stem for path in scripts if "formats: ipynb" in path.read_text(encoding="utf-8")]


def executed(name: str) -> nbformat.NotebookNode:
    """The notebook of a script, run from top to bottom in a directory of its own."""
    notebook = jupytext.read(EXAMPLES / f"{name}.py")
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same in every run
    with tempfile.TemporaryDirectory() as directory:
        resources = {"metadata": {"path": directory}}
        NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "data" in output:
                output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
    return notebook


def main() -> None:
    """Run scripts as notebooks, and write what came out."""
    parser = argparse.ArgumentParser(description="Make the notebooks of examples/.")
    parser.add_argument("names", nargs="*", help="names of scripts; all by default")
    for name in parser.parse_args().names or paired():
        target = EXAMPLES / f"{name}.ipynb"
        nbformat.write(executed(name), target)
        print(target)


if __name__ == "__main__":
    main()
