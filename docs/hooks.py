"""What the site has besides the pages in docs/: root documents, examples, decisions and commands.

MkDocs calls the functions whose names begin with `on_`. Links to files outside docs/, which work in
the repository, are turned into links to the pages that are made of these files.
"""

import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
}
"""Pages of the site that stand for documents at the root of the repository."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(?=[)#])")
"""Target of a link or an image, without its anchor."""
COMMANDS = "<!-- the commands -->"
"""Replaced by the commands of the command line."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put all examples and all decisions into the navigation."""
    config.nav = _replaced(
        config.nav, "examples", [f"examples/{name}" for name in _example_pages()]
    )
    decisions = ["index.md", *(path.name for path in _decisions())]
    config.nav = _replaced(config.nav, "decisions", [f"decisions/{name}" for name in decisions])
    return config


def _decisions() -> list[Path]:
    """The decisions, newest first."""
    return sorted((ROOT / "docs/decisions").glob("[0-9]*.md"), reverse=True)


def _replaced(nav: Any, name: str, pages: list[str]) -> Any:
    """A navigation with an entry replaced by pages."""
    if isinstance(nav, list):
        return [_replaced(each, name, pages) for each in nav]
    if isinstance(nav, dict):
        return {title: _replaced(each, name, pages) for title, each in nav.items()}
    return pages if nav == name else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside docs/."""
    for source, target in ROOT_PAGES.items():
        if target != "index.md":
            text = _linked((ROOT / source).read_text(encoding="utf-8"), "", target)
            files.append(File.generated(config, target, content=text))
    for name, text in _example_pages().items():
        files.append(File.generated(config, f"examples/{name}", content=text))
    files.append(File.generated(config, "decisions/index.md", content=_decision_list()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links to files outside docs/ into links to pages; write the commands."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, _commands())
    if page.file.generated_by is not None:
        return markdown
    return _linked(
        markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)), page.file.src_uri
    )


def _linked(markdown: str, folder: str, page: str) -> str:
    """A document with links as the site has them.

    Args:
        markdown: the document.
        folder: where it is in the repository.
        page: where it is in the site.
    """

    def site_link(found: re.Match[str]) -> str:
        target = _page_of(posixpath.normpath(posixpath.join(folder, found[1])))
        return posixpath.relpath(target, posixpath.dirname(page) or ".")

    return LINK.sub(site_link, markdown)


def _page_of(path: str) -> str:
    """The page of the site that is made of a file or folder of the repository."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path in ("docs/decisions", "examples"):
        return f"{path.removeprefix('docs/')}/index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if re.fullmatch(r"examples/\w+\.(py|ipynb)", path):
        return f"{path.rpartition('.')[0]}.md"
    raise PluginError(f"expected a link to docs/, examples/ or {', '.join(ROOT_PAGES)}, got {path}")


def _decision_list() -> str:
    """A page that lists all decisions."""
    titles = [(path.name, path.read_text(encoding="utf-8").split("\n")[0]) for path in _decisions()]
    lines = [f"- [{title.removeprefix('# ')}]({name})" for name, title in titles]
    intro = "Why things are as they are, what was measured, what was tried and left. Newest first."
    return "\n".join(["# Decisions", "", intro, "", *lines, ""])


def _example_pages() -> dict[str, str]:
    """A page that lists all examples, and their pages."""
    notebooks = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}
    scripts = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
    pages = {f"{name}.md": _notebook_page(path) for name, path in notebooks.items()}
    lines = [
        "# Examples",
        "",
        "Scripts and notebooks in `examples/`, on word vectors that come with `l2route[demo]`.",
        "Tests run all of them. A notebook and the script of the same name have the same content.",
        "",
    ]
    for name, path in scripts.items():
        text = path.read_text(encoding="utf-8")
        if name not in notebooks:
            pages[f"{name}.md"] = f"# {path.name}\n\n```python\n{text}```\n"
        lines.append(f"- [{_kind(name, notebooks)}]({name}.md): {_first_sentence(text)}")
    return {"index.md": "\n".join([*lines, ""])} | pages


def _kind(name: str, notebooks: dict[str, Path]) -> str:
    return f"{name}.ipynb" if name in notebooks else f"{name}.py"


def _first_sentence(script: str) -> str:
    """The first sentence of a script's docstring."""
    found = re.search(r'"""\s*(?:# [^\n]*\s+)?(.*?[.:])\s', script, re.DOTALL)
    if found is None:
        raise PluginError("expected a script with a docstring, got none")
    return " ".join(found[1].split())


def _notebook_page(path: Path) -> str:
    """A notebook with its outputs as one page."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"\A(# .*)\.$", r"\1", cell.source, flags=re.MULTILINE)
            parts.append(_linked(text, "examples", f"examples/{path.stem}.md"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _shown(output: Any) -> str:
    """An output of a cell: text or a picture."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.data
    if "text/html" in data:
        return str(data["text/html"]).replace("\n", "&#10;")  # a frame, in one line for Markdown
    if "image/png" in data:
        return f"![picture](data:image/png;base64,{data['image/png'].strip()})"
    return f"```text\n{data['text/plain'].rstrip()}\n```"


def _commands() -> str:
    """The commands with their options, as typer describes them."""
    asked = "l2route.cli.app utils docs --name l2route"
    command = [sys.executable, "-m", "typer", *asked.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(f"expected typer to describe the commands, got: {done.stderr}")
    sections = done.stdout.partition("\n## ")  # the first is that of all commands
    return "## " + re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", sections[2])
