"""Clients of the servers, the plain process and the compressing command of a soak."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from threading import Lock

import numpy as np

from changers import Command, DeadError, RefusedError
from histories import Change, Value, vector_of
from sharing import Answer, Plain, Serving
from soak.stage import Stage
from wishes import SHARED_IDS, Source, Wish

N_OWN = 30
"""Vectors that a client adds before it deletes some."""
K = 10
STALE = "refused: stale saves"


class Owner:
    """Draws changes of ids that nobody else changes, and of some that all change.

    Args:
        stage: what is shared.
        seed: of the changes.
        may_name: whether it names ids, too.
    """

    def __init__(self, stage: Stage, seed: int, *, may_name: bool = False) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)
        self._may_name = may_name
        self._all: set[int] = set()
        self._own: set[int] = set()
        self._lock = Lock()

    def drawn(self) -> tuple[Wish, bool]:
        """A change, and whether nobody else changes its ids."""
        with self._lock:
            source = self._source()
            shared = SHARED_IDS[::2] if source == "share" else ()
            wish = self._stage.wishes.drawn(source, sorted(self._own), self._rng, shared)
            self._own -= set(wish.ids or ())  # until it is acknowledged
        return wish, source != "share"

    def _source(self) -> Source:
        chance = self._rng.random()
        if chance < 0.2:
            return "share"
        if chance < 0.5 and self._own:
            return "name" if self._may_name and chance < 0.3 else "update"
        if len(self._own) < 2 * N_OWN * self._rng.random():
            return "add" if self._rng.random() < 0.5 else "choose"
        return "delete"

    def keep(self, changes: list[Change], begin: float) -> None:
        """Note what was acknowledged of what was begun then."""
        held = {each.id_ for each in changes if each.id_ is not None and each.value.number}
        with self._lock:
            self._all |= held
            if not self._stage.was_restored_since(begin):  # otherwise nobody knows
                self._own |= held

    def put_back(self, wish: Wish, begin: float) -> None:
        """Note that a change was not made."""
        with self._lock:
            if wish.kind != "add" and not self._stage.was_restored_since(begin):
                self._own |= self._all & set(wish.ids or ())

    def restored(self, content: Mapping[int, Value]) -> None:
        """Note that the index holds something else."""
        with self._lock:
            self._own = self._all & content.keys()


class Changer:
    """A client that changes the index by way of the servers.

    Args:
        stage: what is shared.
        seed: of the changes.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)
        self.owner = Owner(stage, seed)

    def work(self) -> None:
        """Change something, and look for it."""
        begin = time.monotonic()
        with self._stage.gate.passing():
            self._change()
        self._stage.pause(begin)

    def _change(self) -> None:
        stage, begin = self._stage, time.monotonic()
        server = stage.one_server(self._rng)
        wish, is_own = self.owner.drawn()
        with stage.figures.timing("changes"):
            answer = server.change(wish)
        if answer.status != 200:
            if not answer.changes:
                self.owner.put_back(wish, begin)
            self._check_refusal(answer, wish, is_own, begin)
        elif is_own:
            stage.figures.count("changes acknowledged", len(answer.changes))
            self.owner.keep(answer.changes, begin)
            self._check_seen(server, answer, begin)

    def _check_seen(self, server: Serving, answer: Answer, begin: float) -> None:
        """What was acknowledged is found, unless it was undone since it was begun."""
        try:
            server.check_seen(answer.changes)
        except AssertionError:
            if not self._stage.was_restored_since(begin):
                raise

    def _check_refusal(self, answer: Answer, wish: Wish, is_own: bool, begin: float) -> None:
        """A change is refused for want of space, or as others have changed the same ids."""
        if answer.status == 503 and self._stage.may_fail(answer.text, begin):
            return
        if answer.status == 422 and not is_own:
            self._stage.figures.count("refused: shared ids")
            return
        if answer.status in (409, 422) and self._stage.was_restored_since(begin):
            self._stage.figures.count("refused: restored meanwhile")
            return
        self._stage.blame(f"refused: {wish} with {answer}")


class Searcher:
    """A client that searches all the time.

    Args:
        stage: what is shared.
        seed: of the queries.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)

    def work(self) -> None:
        """Search once."""
        begin = time.monotonic()
        query = vector_of(int(self._rng.integers(1000))).tolist()
        server = self._stage.one_server(self._rng)
        with self._stage.figures.timing("searches"):
            answer = server.server.post("/search", {"queries": query, "k": K})
        assert answer.status_code == 200, answer.text
        (ids,) = answer.json()["ids"]
        if len(set(ids)) != K:
            self._stage.blame(f"twice: expected {K} answers, got {ids}")
        self._stage.pause(begin)


class PlainWork:
    """A plain process that loads the index, changes it, reworks it now and then, and saves it.

    Args:
        stage: what is shared.
        seed: of the changes.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)
        self.owner = Owner(stage, seed, may_name=True)
        self.plain: Plain | None = None

    def work(self) -> None:
        """Load, change and save once."""
        begin = time.monotonic()
        with self._stage.gate.passing():
            plain = self.plain = self.plain or Plain(self._stage.path, self._stage.history)
            try:
                self._change(plain, begin)
            except DeadError:
                self.close()
                self._stage.figures.count("plain processes killed")
            except RefusedError as error:
                if not self._stage.may_fail(str(error), begin):
                    raise
                self.close()
        self._stage.is_over.wait(self._rng.random())

    def _change(self, plain: Plain, begin: float) -> None:
        plain.load()
        own = [wish for wish in self._changed(plain, begin) if wish.kind != "add"]
        if self._rng.random() < 0.1:
            plain.rework("renumber")
        with self._stage.figures.timing("saves of the plain process"):
            save = plain.save()
        self.owner.keep([each for each in save.changes if each.id_ not in SHARED_IDS], begin)
        for wish in () if save.is_done else own:
            self.owner.put_back(wish, begin)
        self._stage.figures.count("saves of the plain process" if save.is_done else STALE)

    def _changed(self, plain: Plain, begin: float) -> Iterator[Wish]:
        """Make some changes in memory; those of ids that nobody else changes."""
        for _ in range(self._rng.integers(1, 4)):
            wish, is_own = self.owner.drawn()
            answer = plain.change(wish)
            is_refused = answer.startswith("ValueError")
            if is_own and is_refused and not self._stage.was_restored_since(begin):
                self._stage.blame(f"refused: {wish} with {answer}")
            if is_own:
                yield wish

    def close(self) -> None:
        """End the process."""
        if self.plain is not None:
            self.plain.close()
        self.plain = None


class CommandWork:
    """A command that compresses the index again and again.

    Args:
        stage: what is shared.
        seed: of the pauses.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)
        self._kinds = cycle(("int8", "float16"))
        self.command: Command | None = None

    def work(self) -> None:
        """Compress once."""
        begin, kind = time.monotonic(), next(self._kinds)
        with self._stage.gate.passing(), self._stage.figures.timing("compressions"):
            options = ("--space", "original", "--routing", kind)
            place = str(self._stage.path)
            self.command = Command(self._stage.folder, "compress", place, *options)
            code, said = self.command.join()
            self._judge(code, said, kind, begin)
        self._stage.is_over.wait(1 + 2 * self._rng.random())

    def _judge(self, code: int, said: str, kind: str, begin: float) -> None:
        figures = self._stage.figures
        figures.note(f"compress {kind} ended with {code}")
        if code == 0:
            if not self._stage.was_restored_since(begin):  # otherwise nobody knows
                self._stage.spaces.add(f"original-{kind}")
            figures.count("compressions")
        elif code < 0:
            figures.count("commands killed")
        elif "expected version" in said:
            figures.count(STALE)
        elif not self._stage.may_fail(said, begin):
            self._stage.blame(f"compress {kind} ended with {code}: {said}")
