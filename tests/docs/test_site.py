"""Laws of the site: it builds without a warning, and the reference has all that is public."""

import inspect
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from typer.main import get_command

import l2route
from browsers import browser, browser_path, serving, visiting
from documents import ROOT
from l2route.cli.app import app

LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""")
"""What a page would load from the network."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by `mkdocs build --strict`."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(directory)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def documented(site: Path) -> set[str]:
    """Names of all objects in the reference, from the inventory that other sites link by."""
    content = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(content.split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0] for line in lines}


def public_names(kind: type) -> Iterator[str]:
    """Public methods and properties of a class, inherited ones included."""
    for name, _ in inspect.getmembers(kind):
        if not name.startswith("_"):
            yield name


def test_the_reference_has_all_that_is_public(site: Path) -> None:
    """Every name of the package and every public member of its classes is in the reference."""
    names = documented(site)
    assert {f"l2route.{name}" for name in l2route.__all__} <= names
    for kind in (l2route.RoutingIndex, l2route.SearchResult, l2route.Labels):
        members = {f"l2route.{kind.__name__}.{name}" for name in public_names(kind)}
        assert len(members) > 5
        assert members - names == set()


def test_what_the_pages_name_is_in_the_reference(site: Path) -> None:
    """Every object of the package that the reference asks for is there."""
    asked = {
        name
        for page in (ROOT / "docs/reference").glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    }
    assert len(asked) > 30
    assert asked <= documented(site)


class Text(HTMLParser):
    """The text of a page, without its tags."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_data(self, data: str) -> None:
        """Keep a piece of text."""
        self.parts.append(data)

    @property
    def joined(self) -> str:
        """All text."""
        return "".join(self.parts)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command with its options."""
    waiting = [("l2route", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        subcommands = getattr(command, "commands", {})
        waiting += [(f"{name} {each}", inner) for each, inner in subcommands.items()]
        if not subcommands:
            yield name, [option for each in command.params for option in each.opts]


def test_the_reference_has_every_command(site: Path) -> None:
    """Every command of the command line is in the reference, with all its options."""
    text = Text(site / "reference/cli.html").joined
    known = dict(commands())
    assert len(known) > 15
    for name, options in known.items():
        assert name in text
        part = text.split(f"{name} [OPTIONS]")[1].split("Usage")[0]
        for option in options:
            assert option.lower() in part.lower(), f"{name} {option}"


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    """No page loads a script, a style, a font or a picture from another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not LOADED.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text()), style


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    served = FastAPI()
    served.mount("/", StaticFiles(directory=site, html=True))
    with serving(served) as url:
        yield url


@pytest.mark.skipif(browser_path() is None, reason="no Chromium: see `make chromium`")
def test_a_browser_asks_no_other_server(address: str) -> None:
    """A reader without network sees every kind of page, light or dark, wide or narrow."""
    pages = ("index.html", "concepts.html", "reference/routing-index.html", "results.html")
    with browser() as opened:
        for page, width, scheme in zip(
            pages, (1280, 375, 375, 375), ("light", "dark") * 2, strict=True
        ):
            size = {"width": width, "height": 800}
            with visiting(opened, address, viewport=size, color_scheme=scheme) as visit:
                visit.page.goto(address + page)
                wide = "document.documentElement.scrollWidth - window.innerWidth"
                assert visit.page.evaluate(wide) <= 0, page
                broken = "[...document.images].filter(each => !each.naturalWidth).length"
                assert visit.page.evaluate(broken) == 0, page


@pytest.mark.skipif(browser_path() is None, reason="no Chromium: see `make chromium`")
def test_the_search_finds_pages(address: str) -> None:
    """The search of the site finds what a slack is."""
    with browser() as opened, visiting(opened, address) as visit:
        field = visit.page.get_by_placeholder("Search")
        field.click()
        field.press_sequentially("slack")
        found = visit.page.locator(".md-search-result__list")
        found.get_by_text("What a slack is").first.wait_for()


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """Every document can be reached from the home page's navigation or from a list."""
    linked: set[Path] = set()
    for page in site.rglob("*.html"):
        for target in re.findall(r'href="([^"#:]+\.html)', page.read_text(encoding="utf-8")):
            linked.add((page.parent / target).resolve())
    pages = {page.resolve() for page in site.rglob("*.html")} - {(site / "404.html").resolve()}
    assert pages - linked == set()
