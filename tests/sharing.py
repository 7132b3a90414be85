"""Processes that share an index directory, each with a note of what it was told to change."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from changers import DeadError, RefusedError, WebServer, Worker
from histories import GONE, Change, History, vector_of
from wishes import Wish

MODES = {
    "follows": ("--reload-seconds", "0.05"),
    "maps": ("--reload-seconds", "0.05", "--mmap"),
    "stays": ("--no-reload",),
    "saves late": ("--save-seconds", "3600", "--reload-seconds", "0.05"),
    "saves soon": ("--save-seconds", "0.05", "--no-reload"),
    "saves soon and follows": ("--save-seconds", "1", "--reload-seconds", "0.2"),
}
"""Options of servers."""
IN_MEMORY = "in memory"
"""What the answer says to a change that was made, and could not be written to disk."""
NUMBERS = itertools.count(1)
"""Numbers of processes, in what is said of them."""


@dataclass(frozen=True, slots=True)
class Save:
    """What a plain process has answered to a save."""

    text: str
    is_done: bool
    changes: list[Change] = field(default_factory=list)
    """What was acknowledged."""
    spaces: set[str] = field(default_factory=set)
    """Spaces that were added."""


class Plain:
    """A plain process: it loads an index, changes it in its memory, and saves it.

    Methods return what the process answered. A DeadError says that it was killed.
    """

    def __init__(self, path: Path, history: History) -> None:
        self.worker, self._history = Worker(path), history
        self.number = next(NUMBERS)
        self.spaces: set[str] = set()
        """Spaces that it has added since it loaded the index, or saved it."""
        self._changes: list[Change] = []
        self._is_mapped = False

    def __str__(self) -> str:
        return f"plain process {self.number}"

    def change(self, wish: Wish) -> str:
        """Change the index in memory."""
        changes = wish.begun(self._history)
        try:
            ids = self.worker.call(wish.kind, *wish.arguments())
        except RefusedError as error:
            self._history.refuse(changes)
            return _said(error, "ValueError: expected")
        except DeadError:
            self._history.give_up(changes)
            raise
        self._history.place(changes, ids)
        self._changes += changes
        return str(ids)

    def rework(self, kind: str) -> str:
        """Make another index of it, in memory; see `changers`."""
        try:
            self.worker.call("rework", kind)
        except RefusedError as error:
            return _said(error, "ValueError: expected an index with vectors")
        if kind in ("int8", "float16"):
            self.spaces.add(f"original-{kind}")
        return kind

    def save(self) -> Save:
        """Save the index, or load it again if that is refused."""
        self.worker.ask("save")
        return self.saved()

    def saved(self) -> Save:
        """The answer to a save that was asked for."""
        try:
            self.worker.answer()
        except RefusedError as error:
            refused = Save(_said(error, "StaleError"), False)
            self.load()
            return refused
        self._history.acknowledge(self._changes)
        save = Save("saved", True, self._changes, self.spaces)
        self._changes, self.spaces = [], set()
        return save

    def refresh(self) -> str:
        """Bring in what others have saved; load the index again if that is refused."""
        try:
            self.worker.call("refresh")
        except RefusedError as error:
            said = _said(error, "StaleError")
            self.load()
            return said
        return "refreshed"

    def load(self) -> None:
        """Load the index anew, without what was not saved; every other time it is mapped."""
        self._is_mapped = not self._is_mapped
        self.worker.call("load", self._is_mapped)
        self._history.refuse(self._changes)
        self._changes, self.spaces = [], set()

    def close(self) -> None:
        """Kill the process."""
        self.worker.close()
        self._history.give_up(self._changes)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server has answered to a change."""

    status: int
    text: str
    changes: list[Change]
    """What was changed, if it was."""

    def __str__(self) -> str:
        return f"{self.status} {self.text}"


class Serving:
    """A server, and what it has acknowledged and not saved.

    Methods return what the server answered. A DeadError says that it was killed.

    Args:
        path: directory of the index.
        history: of the index.
        mode: one of MODES.
        folder: directory for what the server prints.
        die_at: see `changers.kill_at`.
    """

    def __init__(
        self,
        path: Path,
        history: History,
        mode: str,
        folder: Path,
        die_at: tuple[int, bool] | None = None,
    ) -> None:
        self.server = WebServer(path, *MODES[mode], folder=folder, die_at=die_at)
        self.number, self.mode, self._history = next(NUMBERS), mode, history
        self._changes: list[Change] = []

    def __str__(self) -> str:
        return f"server {self.number} that {self.mode}"

    @property
    def may_be_stale(self) -> bool:
        """Whether it refuses changes while the directory holds a newer save."""
        return "--no-reload" in MODES[self.mode]

    def change(self, wish: Wish) -> Answer:
        """Change the index.

        A change that was made in memory alone, as the disk is full, may be saved as long as the
        server runs.
        """
        changes = wish.begun(self._history)
        try:
            answer = self.server.post(f"/{wish.kind}", wish.body())
        except DeadError:
            self._history.give_up(changes)
            raise
        if answer.status_code == 200:
            self._history.place(changes, answer.json()["ids"])
            if answer.json()["saved"]:
                self._history.acknowledge(changes)
                return Answer(200, answer.text, changes)
        elif IN_MEMORY not in answer.text:
            self._history.refuse(changes)
            return Answer(answer.status_code, answer.text, [])
        self._changes += changes
        return Answer(answer.status_code, answer.text, changes)

    def check_seen(self, changes: Sequence[Change]) -> None:
        """A search sees every change that its server has acknowledged."""
        for change in changes:
            query = vector_of(change.value.number or 0).tolist()
            answer = self.server.post("/search", {"queries": query, "where": [change.id_], "k": 1})
            assert answer.status_code == 200, answer.text
            (ids,), (distances,) = answer.json()["ids"], answer.json()["distances"]
            assert ids == ([] if change.value == GONE else [change.id_]), (change, answer.text)
            assert not ids or distances[0] < 1e-6, (change, answer.text)

    def save(self) -> str:
        """Save what has changed."""
        answer = self.server.post("/save")
        if answer.status_code == 200:
            self._history.acknowledge(self._changes)
            self._changes = []
        else:
            assert (answer.status_code, self.may_be_stale) == (409, True), answer.text
        return f"{answer.status_code} {answer.text}"

    def reload(self) -> str:
        """Serve what others have saved."""
        answer = self.server.post("/reload")
        assert answer.status_code == 200, answer.text
        return answer.text

    def n_vectors(self) -> int:
        """Vectors of the index that is served."""
        return int(self.server.client.get("/info").json()["n_vectors"])

    def undo(self) -> None:
        """Note that the index is about to be restored: what was not saved will not be."""
        self._history.give_up(self._changes)
        self._changes = []

    def end(self) -> None:
        """End the server in order: it saves what has changed."""
        with suppress(DeadError):
            assert self.server.client  # it takes connections, and so has a handler of signals
        self.server.process.send(signal.SIGTERM)
        if self.server.process.join() == -signal.SIGTERM:
            self._history.acknowledge(self._changes)
            self._changes = []
        self.close()

    def close(self) -> None:
        """Kill the server."""
        self.server.close()
        self._history.give_up(self._changes)


def _said(error: RefusedError, reason: str) -> str:
    """What was said by a process that refuses for this reason; any other one is raised."""
    if not str(error).startswith(reason):
        raise error
    return str(error)
