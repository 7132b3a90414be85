"""A real browser, and a server for it, for tests of pages."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def browser_path() -> str | None:
    """The program of a Chromium that is installed, or Playwright's own; None if there is none."""
    for command in COMMANDS:
        if found := shutil.which(command):
            return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()


@dataclass
class Visit:
    """A page that is open, what it complained of, and what it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)


@contextmanager
def visiting(opened: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Open a page, and afterwards check that it complained of nothing and asked no other server.

    Args:
        opened: the browser.
        url: the page; empty for a blank one.
        **options: options of Playwright's `new_context`: viewport, color_scheme, reduced_motion.
    """
    context = opened.new_context(**options)
    visit = Visit(context.new_page())

    def note_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.complaints.append(message.text)

    def note_request(request: Request) -> None:
        visit.urls.append(request.url)

    visit.page.on("console", note_message)
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("request", note_request)
    visit.page.set_default_timeout(15_000)
    try:
        if url:
            visit.page.goto(url)
        yield visit
        assert visit.complaints == []
        assert [
            each for each in visit.urls if not each.startswith((url or "about:", "about:"))
        ] == []
    finally:
        context.close()


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free port; yields its address, which ends in a slash."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "expected a server that starts"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
