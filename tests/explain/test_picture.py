"""Laws of pictures: the figure, and the frame in notebooks, in a real browser."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import expect

from browsers import browser, browser_path, visiting
from indexes import QUERIES, built, with_everything
from l2route.explain.explanation import Explanation
from l2route.explain.picture import html_of, payload

HOSTILE = "</script><img src=x onerror=window.top.hacked=1>\"'&amp;<!-- $x$"


def hostile(ids: NDArray[np.int64]) -> list[str]:
    """Names that a careless frame would run."""
    return [f"{HOSTILE}{id_}" for id_ in ids.tolist()]


@pytest.fixture(scope="module")
def explained() -> Explanation:
    """Two walks."""
    return with_everything().explain(QUERIES[0], 5, budget=80)


@pytest.mark.parametrize("view", ["plane", "distance"])
def test_figure(explained: Explanation, view: str) -> None:
    """A figure has a map for each walk, and a line of recall that ends at that of the walk."""
    figure = explained.plot(view)  # type: ignore[arg-type] # a Literal
    figure.canvas.draw()
    *maps, chart = figure.axes
    assert len(maps) == len(explained.walks) == 2
    for axes, walk in zip(maps, explained.walks, strict=True):
        assert f"recall@5 {walk.recall:.2f}" in axes.get_title(loc="left")
    ends = [line.get_xydata()[-1] for line in chart.get_lines()[::2]]  # type: ignore[index]
    np.testing.assert_allclose(ends, [(walk.cost, walk.recall) for walk in explained.walks])


def test_figure_of_awkward_explanations() -> None:
    """One walk, names with signs of mathematics, and one vector are drawn."""
    index = built()
    for found in (
        index.explain(QUERIES[0]).named(hostile),
        index.explain(QUERIES[0], 400, ef=400),
        type(index).build(QUERIES[:1]).explain(QUERIES[1]),
    ):
        found.plot().canvas.draw()
        found.plot("distance").canvas.draw()


def test_view_is_checked(explained: Explanation) -> None:
    """A view that there is not is refused."""
    with pytest.raises(ValueError, match="expected a view of plane, distance, got 'sphere'"):
        explained.plot("sphere")  # type: ignore[arg-type] # the mistake


def test_without_matplotlib(explained: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the message says how to install it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install .*plots"):
        explained.plot()


class Frames(HTMLParser):
    """Reads the frames of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep all elements."""
        self.found.append({"tag": tag, **dict(attrs)})


def test_frame_loads_nothing(explained: Explanation) -> None:
    """The frame of a notebook is one element, isolated, and names no file and no server."""
    parser = Frames()
    parser.feed(html_of(explained.named(hostile)))
    (frame,) = parser.found
    assert (frame["tag"], frame["sandbox"]) == ("iframe", "allow-scripts")
    page = frame["srcdoc"] or ""
    assert page.count("</script>") == 2
    head = page.split('<script type="application/json"')[0]
    assert not re.search(r"\b(src|href|url)\s*[=(]", head)
    assert "import " not in page.split('<script type="module">')[1].split("\n")[0]
    urls = set(re.findall(r"https?://[^\s\"'\\]+", page))
    assert urls == {"http://www.w3.org/2000/svg"}


def test_payload_names_every_point(explained: Explanation) -> None:
    """What is drawn has a name for every point, and ids as text."""
    drawn = payload(explained)
    assert drawn["names"] == drawn["ids"] == [str(id_) for id_ in explained.ids.tolist()]


@pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed")
def test_frame_in_a_browser(explained: Explanation) -> None:
    """In a page without network, the frame draws both walks, and its slider moves them."""
    html = f"<!doctype html><title>notebook</title>{explained.named(hostile)._repr_html_()}"
    with browser() as opened, visiting(opened, "", offline=True) as visit:
        visit.page.set_content(html)
        frame = visit.page.frame_locator("iframe")
        expect(frame.locator(".panel")).to_have_count(2)
        slider = frame.get_by_role("slider")
        begin = max(walk.n_computed[0] for walk in explained.walks)
        spent_by = {float(f"{c:.7g}") for walk in explained.walks for c in walk.n_computed}
        costs = sorted(cost for cost in spent_by if cost >= begin)
        expect(slider).to_have_value(str(len(costs) - 1))
        slider.press("Home")
        expect(frame.locator("output.cost")).to_have_text(f"{costs[0]:.0f} distances")
        for _ in range(4):
            slider.press("ArrowRight")
        spent = frame.locator(".counters div:nth-child(2) dd").all_inner_texts()
        within = [walk.n_computed[walk.n_computed <= costs[4]] for walk in explained.walks]
        assert spent == [f"{each[-1]:.0f}" for each in within]
        drawn = frame.locator("canvas").first.evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        assert drawn > 10  # more colours than an empty canvas has
        assert visit.page.evaluate("window.hacked") is None
