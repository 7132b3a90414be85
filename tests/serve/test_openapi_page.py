"""Laws of the page of the OpenAPI document, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browsers import browser, browser_path, serving, visiting
from l2route.serve.app import create_app
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served
from serving import saved_index

pytestmark = pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed")
KEY = "key"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a key."""
    path = saved_index(tmp_path_factory.mktemp("docs") / "index.l2r")
    with serving(create_app(Served(path), ServeOptions(api_key=KEY))) as url:
        yield url


def test_requests_are_shown_and_tried(address: str) -> None:
    """The page lists all requests; one is sent, and one with the key. No other host is asked."""
    with browser() as opened, visiting(opened, address) as visit:
        page = visit.page
        page.goto(f"{address}docs")
        for path in ("/search", "/add", "/update", "/delete", "/info", "/metrics"):
            expect(page.locator(f'.opblock [data-path="{path}"]').first).to_be_visible()
        assert '"n_vectors": 300' in _tried(page, "status-info_info_get", "200")
        assert '"ids"' in _tried(page, "search-search_search_post", "200")
        page.get_by_role("button", name="Authorize", exact=True).click()
        page.get_by_label("auth-bearer-value").fill(KEY)
        page.locator(".modal-btn.authorize").click()
        page.get_by_role("button", name="Close").click()
        assert '"n_vectors": 300' in _tried(page, "changes-save_save_post", "200")


def _tried(page: Page, operation: str, status: str) -> str:
    """Send the example of a request, and return the answer."""
    shown = page.locator(f"#operations-{operation}")
    shown.locator("button.opblock-summary-control").click()
    shown.get_by_role("button", name="Try it out").click()
    shown.get_by_role("button", name="Execute").click()
    answer = shown.locator(".live-responses-table")
    expect(answer.locator(".response-col_status").last).to_contain_text(status)
    return answer.inner_text()


def test_other_files_are_refused(address: str) -> None:
    """Only the files of the page are served; no path leads out of them."""
    with browser() as opened:
        context = opened.new_context()
        for name in ("redoc.standalone.js", "..%2fcore.py", "%2e%2e/pyproject.toml"):
            assert context.request.get(f"{address}docs/{name}").status == 404, name


def test_scripts_of_others_are_refused(address: str) -> None:
    """The page's policy allows scripts and requests of its own server alone."""
    with browser() as opened:
        found = opened.new_context().request.get(f"{address}docs")
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy
    assert "img-src 'self' data:;" in policy
