"""Laws of the page, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browsers import browser, browser_path, serving, visiting
from indexes import QUERIES, VALIDATION, built
from l2route.data.labels import Labels
from l2route.serve.app import create_app
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served

pytestmark = pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed")
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    '"><svg onload=window.hacked=1>',
    "{{7*7}}${window.hacked=1}",
    "two\nlines",
    "\u202eright to left",
    "long " * 2000,
]
"""Labels that a careless page would run, or lay out badly."""


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    """A browser for all tests."""
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with labels, two spaces and validation queries."""
    index = built()
    index.validate_with(VALIDATION)
    index.compress("int8")
    index.setting(0.95, 10)
    path = tmp_path_factory.mktemp("page") / "index.l2r"
    index.save(path)
    names = [f"word{i}" for i in range(len(index))]
    names[100 : 100 + len(HOSTILE)] = HOSTILE
    with serving(create_app(Served(path, Labels.of(names)), ServeOptions())) as url:
        yield url


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without labels, of an index with one space and no validation queries."""
    path = tmp_path_factory.mktemp("bare") / "index.l2r"
    built().save(path)
    with serving(create_app(Served(path), ServeOptions())) as url:
        yield url


def search(page: Page, text: str) -> None:
    """Type a query and press Enter."""
    page.get_by_label("Search for").fill(text)
    page.get_by_label("Search for").press("Enter")


def settled(page: Page) -> Page:
    """Wait until the first example is shown, and its walk has been played."""
    expect(page.locator("#result")).to_be_visible()
    expect(page.get_by_role("button", name="Play the walk")).to_be_visible(timeout=20_000)
    return page


def first_answer(page: Page) -> Any:
    """The first row of the answers."""
    return page.locator("#answers-body tr").first


STILL = {"reduced_motion": "reduce"}


def test_search_by_label(opened: Browser, address: str) -> None:
    """A label finds its own vector first, at distance 0, and ten answers in all."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        search(page, "word42")
        expect(page.locator("#headline")).to_have_text("word42")
        expect(first_answer(page).locator(".name")).to_have_text("word42")
        expect(first_answer(page).locator(".distance")).to_have_text("0")
        assert page.locator("#answers-body tr:not(.missed)").count() == 10
        expect(page.locator("#summary")).to_contain_text("Among 400 vectors, the plain walk finds")
        assert "q=word42" in page.url
        page.reload()
        expect(page.locator("#headline")).to_have_text("word42")


def test_search_by_id_and_vector(opened: Browser, address: str, bare: str) -> None:
    """Ids and vectors are searched for, with labels and without."""
    with visiting(opened, bare, **STILL) as visit:
        page = settled(visit.page)
        search(page, "17")
        expect(page.locator("#headline")).to_have_text("#17")
        expect(first_answer(page).locator(".name")).to_have_text("17")
        listed = ", ".join(f"{value:.5f}" for value in QUERIES[0])
        search(page, f"[{listed}]")
        expect(page.locator("#headline")).to_contain_text("(12 numbers)")
        assert page.locator(".panel").count() == 1
        expect(page.locator("#curve-note")).to_contain_text("expected validation queries")
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        search(page, "#17")
        expect(page.locator("#headline")).to_have_text("word17")
        search(page, " ".join(f"{value:.5f}" for value in QUERIES[1]))
        expect(page.locator("#headline")).to_contain_text("(12 numbers)")
        assert page.locator(".panel").count() == 2


def test_labels_are_suggested_while_typing(opened: Browser, address: str) -> None:
    """Arrow keys and Enter choose a suggested label; Escape closes the list."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        field = page.get_by_role("combobox", name="Search for")
        field.fill("")
        field.press_sequentially("word39")
        options = page.locator("#suggestions").get_by_role("option")
        expect(options.first).to_contain_text("word39")
        expect(field).to_have_attribute("aria-expanded", "true")
        field.press("ArrowDown")
        field.press("ArrowDown")
        expect(options.nth(1)).to_have_attribute("aria-selected", "true")
        wanted = options.nth(1).locator("span").first.inner_text()
        field.press("Enter")
        expect(page.locator("#headline")).to_have_text(wanted)
        expect(options).to_have_count(0)
        field.press_sequentially("x")
        field.fill("word")
        expect(options.first).to_be_visible()
        field.press("Escape")
        expect(options).to_have_count(0)


def test_slider_by_keyboard(opened: Browser, address: str) -> None:
    """Arrow keys, Home and End move the walks by steps; counters and text for readers follow.

    After each step no walk has spent more than the step costs, and one has spent just that.
    """
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        slider = page.get_by_role("slider", name="Step of the walks")
        slider.focus()
        slider.press("Home")
        expect(slider).to_have_value("0")
        expect(slider).to_have_attribute(
            "aria-valuetext", re.compile(r"\d+ distances. Plain walk: recall")
        )
        before = 0
        for step in range(1, 6):
            slider.press("ArrowRight")
            expect(slider).to_have_value(str(step))
            cost = int(page.locator("output.cost").inner_text().split()[0])
            assert cost > before
            spent = [int(text) for text in computed(page)]
            assert max(spent) == cost
            before = cost
        slider.press("End")
        expect(slider).to_have_value(slider.get_attribute("max") or "")
        hops = page.locator(".counters div:nth-child(3) dd").all_inner_texts()
        assert [text.endswith("ended") for text in hops] == [True, True]


def computed(page: Page) -> list[str]:
    """The counters of distances of all walks."""
    return page.locator(".counters div:nth-child(2) dd").all_inner_texts()


def test_walk_is_played(opened: Browser, address: str) -> None:
    """A result plays its walk once; the button plays it again, and pauses it."""
    with visiting(opened, address) as visit:
        page = settled(visit.page)
        last = page.locator("input.steps").get_attribute("max")
        expect(page.locator("input.steps")).to_have_value(last or "")
        page.get_by_role("button", name="Play the walk").click()
        page.get_by_role("button", name="Pause the walk").click()
        assert int(page.locator("input.steps").input_value()) < int(last or 0)


def test_all_can_be_reached_by_keyboard(opened: Browser, address: str) -> None:
    """Tab goes through the page in reading order, and the focus is visible."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        page.locator("body").press("Tab")
        names = []
        for _ in range(16):
            names.append(
                page.evaluate(
                    "() => { const e = document.activeElement; const s = getComputedStyle(e);"
                    " return [e.id || e.className || e.textContent, s.outlineStyle] }"
                )
            )
            page.keyboard.press("Tab")
        reached = [name for name, _ in names]
        order = ["skip", "theme", "query", "limit", "k", "go", "play", "steps"]
        places = [reached.index(name) for name in order]
        assert places == sorted(places)
        assert all(style != "none" for _, style in names)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened: Browser, address: str, scheme: str) -> None:
    """All text has a contrast of at least 4.5 : 1 with what is behind it."""
    with visiting(opened, address, color_scheme=scheme, **STILL) as visit:
        page = settled(visit.page)
        expect(page.locator(".chart").nth(1)).to_be_visible()
        weak = page.evaluate((Path(__file__).parent / "contrast.js").read_text())
        assert weak == []


def test_dark_and_light(opened: Browser, address: str) -> None:
    """The system's choice is followed, the button overrides it, and that is remembered."""

    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    with visiting(opened, address, color_scheme="dark", **STILL) as visit:
        page = settled(visit.page)
        dark = paper(page)
        page.get_by_role("button", name="Use light colours").click()
        light = paper(page)
        assert dark != light
        page.reload()
        settled(page)
        assert paper(page) == light
        page.emulate_media(color_scheme="light")
        assert paper(page) == light


def test_narrow_screen(opened: Browser, address: str) -> None:
    """At 375 pixels nothing is wider than the screen, and walks are below each other."""
    viewport = {"width": 375, "height": 740}
    with visiting(opened, address, viewport=viewport, **STILL) as visit:
        page = settled(visit.page)
        expect(page.locator(".chart").nth(1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        first, second = (page.locator(".panel").nth(i).bounding_box() for i in (0, 1))
        assert first is not None
        assert second is not None
        assert second["y"] >= first["y"] + first["height"]


def test_labels_are_text(opened: Browser, address: str) -> None:
    """Labels are shown as text: they are neither run nor read as HTML, and widen nothing."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        n_elements = page.locator("img, script, svg[onload]").count()
        field = page.get_by_label("Search for")
        for at, name in enumerate(HOSTILE):
            search(page, f"#{100 + at}")
            expect(page.locator("#headline")).to_have_js_property("textContent", name)
            field.fill("")
            field.press_sequentially(name[:12].strip().splitlines()[0])
            expect(page.locator("#suggestions").get_by_role("option").first).to_be_visible()
            page.locator("canvas").first.hover()
            assert page.evaluate("window.hacked") is None
            assert page.locator("img, script, svg[onload]").count() == n_elements
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


REFUSED = {
    "no such word": "Expected a label, an id or a vector",
    "1, 2, 3": "Expected a vector of 12 numbers, got 3",
    "#99999": "Expected an id of the index",
    "nan": "Expected a label, an id or a vector",
    ", ".join(["1e300"] * 12): "expected",
}
"""What cannot be searched for, and a part of the message."""


def test_errors_in_plain_words(opened: Browser, address: str) -> None:
    """What cannot be searched for is said on the page, and the last result stays."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        before = page.locator("#headline").inner_text()
        for text, message in REFUSED.items():
            search(page, text)
            expect(page.get_by_role("alert")).to_contain_text(message)
            expect(page.locator("#headline")).to_have_text(before)
        # Chromium itself reports every answer with an error status.
        visit.complaints[:] = [each for each in visit.complaints if "422" not in each]
        search(page, "word1")
        expect(page.get_by_role("alert")).to_be_hidden()


def test_answers_lead_on(opened: Browser, address: str) -> None:
    """A click on an answer searches for it; limits and k are those chosen."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        second = page.locator("#answers-body tr button").nth(1)
        wanted = second.inner_text()
        second.click()
        expect(page.locator("#headline")).to_have_text(wanted)
        page.get_by_role("spinbutton", name="Answers").fill("3")
        page.get_by_role("spinbutton", name="Answers").press("Enter")
        expect(page.locator("#answers-body tr:not(.missed)")).to_have_count(3)
        page.get_by_label("Each walk ends at").select_option(label="recall@10 of 0.95")
        expect(page.locator(".panel figcaption").last).not_to_contain_text("budget")


def test_curve_marks_the_setting(opened: Browser, address: str) -> None:
    """Recall against cost is drawn for both spaces, with the setting that recall= chooses."""
    with visiting(opened, address, **STILL) as visit:
        page = settled(visit.page)
        expect(page.locator("#curve .line")).to_have_count(2)
        expect(page.locator("#curve .mark")).to_have_count(1)
        expect(page.locator("#curve .mark-text")).to_contain_text("recall=0.95")
        expect(page.locator("#curve-legend")).to_contain_text("what recall= chooses")
