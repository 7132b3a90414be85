"""Progress callbacks."""

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with the amount done and the total amount; the total is None while it is unknown."""


def ignore(done: int, total: int | None) -> None:
    """A progress callback that does nothing."""
