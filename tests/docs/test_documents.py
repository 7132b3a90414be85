"""Laws of the documents, and of how their code blocks are run."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

import pytest
from markdown_it import MarkdownIt

from documents import DOCUMENTS, MINUTES, ROOT, cut_short

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
NOTEBOOKS = {path.stem for path in ROOT.glob("examples/*.ipynb")}
EXAMPLES = sorted(path for path in ROOT.glob("examples/*.py") if path.stem not in NOTEBOOKS)
"""Scripts; test_notebooks.py runs those that are notebooks too."""
LANGUAGES = {"python", "sh", "console", "text"}
"""Languages of code blocks. All but `text` are run."""
README_LINES = 150


def name_of(path: Path) -> str:
    """A document's name in the output of pytest."""
    return str(path.relative_to(ROOT))


def run(text: str, directory: Path) -> int:
    """Run a document of this text; return how many blocks were run or compared."""
    page = directory / "page.md"
    page.write_text(text)
    document = DOCUMENTS.parse(page)
    assert DOCUMENTS.setup is not None
    assert DOCUMENTS.teardown is not None
    DOCUMENTS.setup(document.namespace)
    n_run = 0
    try:
        for example in document.examples():
            example.evaluate()
            n_run += 1
    finally:
        DOCUMENTS.teardown(document.namespace)
    return n_run


SOUND = """
```python
import numpy as np
np.save("small.npy", vectors[:100])
print("saved", len(queries))
```

```text
saved ...
```

```sh
test -f small.npy   # the block above wrote it
ls examples
```

```console
$ echo one; echo two
one
two
$ true
```
"""


def test_correct_blocks_pass(tmp_path: Path) -> None:
    """Blocks share a namespace and a directory, and their output is compared."""
    assert run(SOUND, tmp_path) == 4


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        ("np.save(", "np.keep("),
        ("saved ...", "saved 99"),
        ("test -f small.npy", "test -f missing.npy"),
        ("ls examples", "l2route info --no-such-option\ntrue"),
        ("one\ntwo", "two\none"),
        ("$ true", "$ false"),
        ("$ ", ""),
    ],
)
def test_broken_blocks_fail(tmp_path: Path, sound: str, broken: str) -> None:
    """A block fails if it raises, prints another output, or its command fails."""
    assert sound in SOUND
    with pytest.raises((AssertionError, AttributeError)):
        run(SOUND.replace(sound, broken), tmp_path)


def test_a_skipped_block_says_why(tmp_path: Path) -> None:
    """A skipped block shows up in the report of the tests, with the reason."""
    text = '<!-- skip: next "downloads" -->\n```sh\nfalse\n```\n'
    with pytest.raises(SkipTest, match="downloads"):
        run(text, tmp_path)


def test_learning_is_cut_short() -> None:
    """Time limits of learning, in Python and on the command line, are replaced by a short one."""
    source = "learn(log, minutes=5)  # minutes"
    assert cut_short(source) == f"learn(log, minutes={MINUTES})  # minutes"
    assert cut_short("l2route learn --minutes 3 x") == f"l2route learn --minutes {MINUTES} x"
    assert cut_short("--minutes-per-run 10.5") == f"--minutes-per-run {MINUTES}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_code_blocks_have_a_known_language(path: Path) -> None:
    """Every code block is fenced and has a language, so that none is left out by accident."""
    for token in MarkdownIt().parse(path.read_text()):
        assert token.type != "code_block", f"indented code: {token.content}"
        if token.type == "fence":
            assert token.info in LANGUAGES, token.content


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_skips_have_a_reason(path: Path) -> None:
    """Every `skip: next` and `skip: start` states a reason in quotes."""
    for arguments in re.findall(r"<!--+ *skip: *(.*?) *--+>", path.read_text()):
        assert re.fullmatch(r'(next|start) "[^"]+"|end', arguments), arguments


def links(path: Path) -> Iterator[str]:
    """Targets of a document's links and images."""
    for token in MarkdownIt().parse(path.read_text()):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield str(target)


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    """Relative links name files, and headings, that exist."""
    for link in links(path):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_readme_is_short() -> None:
    """README.md has fewer than 150 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """Every example runs at a small size and prints a result."""
    learning = ["--minutes", MINUTES] if "--minutes" in path.read_text() else []
    done = subprocess.run(
        [sys.executable, str(path), "--vectors", "2000", *learning],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
