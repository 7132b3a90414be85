"""Troubles: what fails in the background of a server, until it works again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG = logging.getLogger("l2route.serve")


class Troubles:
    """Background work that failed the last time: counted, logged and shown by `/health`.

    Args:
        count: called with the name of work that failed.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self.failing: dict[str, str] = {}
        """Why work failed the last time that it was tried, by its name."""

    @contextmanager
    def attempt(self, work: str) -> Iterator[None]:
        """Try work; an error is noted and goes no further. It is logged once until it changes."""
        try:
            yield
        except Exception as error:
            self.note(work, error)
        else:
            self.failing.pop(work, None)

    def note(self, work: str, error: Exception) -> None:
        """Note an error of work."""
        message = f"{type(error).__name__}: {error}"
        if self.failing.get(work) != message:
            LOG.error("%s failed: %s", work, message, exc_info=error)
        self.failing[work] = message
        self._count(work)
