"""Processes that share an index directory: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import itertools
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from changers import Command, DeadError, RefusedError, Worker
from fuzzing import EFFORT
from histories import History, Value, content_of, vector_of, vectors_of
from l2route.data.labels import Labels
from l2route.files import journal
from l2route.index import RoutingIndex, load
from living import Model, check_answers, check_structure
from sharing import MODES, Answer, Plain, Serving
from wishes import SOURCES, Source, Wish, Wishes

N = 200
"""Vectors of the index at first."""
MOST = 2
"""Plain processes, and servers, at the same time."""
MOST_SNAPSHOTS = 3
MOST_STEPS = 12
"""Calls that change the disk before the one at which a process is killed, at the most."""
MOST_SECONDS = 0.008
"""Seconds after which a process that saves is killed, at the most."""
REWORKS = ("int8", "float16", "refine", "renumber", "compact")
ACTIONS = {
    "start_plain": 1,
    "change_plain": 6,
    "rework": 1,
    "save": 5,
    "overlap": 3,
    "load_plain": 2,
    "kill_plain": 1,
    "start_server": 1,
    "change_served": 6,
    "kill_changing_server": 1,
    "end_server": 1,
    "tidy_served": 2,
    "snapshot": 1,
    "restore": 1,
    "replace": 1,
    "check": 1,
}
"""Methods of the machine, and how often they are called."""
SEEDS = st.integers(0, 2**32 - 1)
Chance = np.random.Generator
T = TypeVar("T", Plain, Serving)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds."""

    content: dict[int, Value]
    spaces: set[str]


def death(rng: Chance) -> tuple[int, bool]:
    """A call at which a process is killed; see `kill_at`."""
    return int(rng.integers(MOST_STEPS)), bool(rng.random() < 0.5)


class SharedDirectory(RuleBasedStateMachine):
    """Whatever processes do, and however they end: see `History` for what is in the index then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "index"
        RoutingIndex.build(vectors_of(range(N)), degree=8, ef_construction=40).save(self.path)
        self.history, self.wishes = History({id_: Value(id_) for id_ in range(N)}), Wishes(N)
        self.plain: list[Plain] = []
        self.servers: list[Serving] = []
        self.spaces: set[str] = set()  # that acknowledged saves have added
        self.snapshots: dict[str, Snapshot] = {}
        self.told: list[str] = []
        self.has_failed = False

    @rule(action=st.sampled_from([a for a, n in ACTIONS.items() for _ in range(n)]), seed=SEEDS)
    def act(self, action: str, seed: int) -> None:
        """Do something; the seed says what exactly."""
        self.told.append(f"{action} {seed}")
        try:
            getattr(self, action)(np.random.default_rng(seed))
        except Exception as error:
            self.explain(error)
            raise

    def tell(self, *words: object) -> None:
        """Add to what was done."""
        self.told.append("   " + " ".join(map(str, words)))

    def explain(self, error: Exception) -> None:
        """Add what was done, and what servers have logged, to the error of a step that fails."""
        self.has_failed = True
        logs = [f"{each}: {each.server.said()}" for each in self.servers]
        error.add_note("\n".join([*self.told, *logs]))

    def wish(self, rng: Chance, sources: Sequence[Source] = SOURCES) -> Wish:
        """A change by chance."""
        held, source = self.history.ids(), sources[int(rng.integers(len(sources)))]
        wish = self.wishes.drawn(source, held, rng, held)
        self.tell(wish)
        return wish

    def chosen(self, processes: list[T], rng: Chance) -> T:
        """One of some processes."""
        process = processes[rng.integers(len(processes))]
        self.tell(process)
        return process

    def tried(self, process: Plain | Serving, work: Callable[[], object]) -> None:
        """Ask a process for something; it may be dead, or die meanwhile."""
        try:
            self.tell(work())
        except DeadError:
            self.drop(process)

    def drop(self, process: Plain | Serving) -> None:
        """Kill a process, which may be dead."""
        self.tell("dead:", process)
        process.close()
        (self.plain if isinstance(process, Plain) else self.servers).remove(process)  # type: ignore[arg-type]

    # plain processes

    def one_plain(self, rng: Chance) -> Plain:
        """One of the plain processes."""
        if not self.plain:
            self.start_plain(rng)
        return self.chosen(self.plain, rng)

    def start_plain(self, rng: Chance) -> None:
        """Start a process that loads the index, in place of another if there are many."""
        if len(self.plain) == MOST:
            self.kill_plain(rng)
        self.plain.append(Plain(self.path, self.history))
        self.plain[-1].load()

    def change_plain(
        self,
        rng: Chance,
        plain: Plain | None = None,
        sources: Sequence[Source] = (*SOURCES, "name"),
    ) -> None:
        """Change the index of a plain process, in its memory."""
        plain, wish = plain or self.one_plain(rng), self.wish(rng, sources)
        self.tried(plain, lambda: plain.change(wish))

    def rework(self, rng: Chance, plain: Plain | None = None) -> None:
        """Rework the index of a plain process, in its memory."""
        plain, kind = plain or self.one_plain(rng), REWORKS[rng.integers(len(REWORKS))]
        self.tried(plain, lambda: plain.rework(kind))

    def save(self, rng: Chance, plain: Plain | None = None) -> None:
        """Save the index of a plain process, which may be killed in the middle, or refused."""
        plain = plain or self.one_plain(rng)
        chance, seconds = rng.random(), rng.random() * MOST_SECONDS

        def work() -> str:
            if chance < 0.15:
                plain.worker.call("die_at", *death(rng))
            plain.worker.ask("save" if rng.random() < 0.6 else "commit")
            if chance > 0.85:
                time.sleep(seconds)
                plain.worker.process.send(signal.SIGKILL)
            return self.saved(plain)

        self.tried(plain, work)

    def saved(self, plain: Plain) -> str:
        """The answer to a save that was asked for."""
        save = plain.saved()
        self.spaces |= save.spaces
        return save.text

    def load_plain(self, rng: Chance) -> None:
        """Load the index of a plain process anew, or bring in what others have saved."""
        plain = self.one_plain(rng)
        self.tried(plain, plain.load if rng.random() < 0.5 else plain.refresh)

    def kill_plain(self, rng: Chance) -> None:
        """Kill a plain process."""
        self.drop(self.one_plain(rng))

    def overlap(self, rng: Chance) -> None:
        """Let a plain process save what it has changed while others have saved, too."""
        plain, other = (Plain(self.path, self.history) for _ in range(2))
        self.plain += [plain, other]
        for each in (plain, other):
            self.tried(each, each.load)
        for _ in range(rng.integers(2, 7)):
            chance = rng.random()
            changed = plain if chance < 0.6 else other
            if 0.4 < chance < 0.7:
                self.change_served(rng, ["share"])
            elif rng.random() < 0.25:
                self.rework(rng, changed)
            else:
                self.change_plain(rng, changed, ["share", "share", "name", "choose"])
        for each in (other, plain):
            each.worker.ask("save" if rng.random() < 0.6 else "commit")
            self.tried(each, partial(self.saved, each))
            self.check(rng)
            self.drop(each)

    # servers

    def one_server(self, rng: Chance) -> Serving:
        """One of the servers."""
        if not self.servers:
            self.start_server(rng)
        return self.chosen(self.servers, rng)

    def start_server(self, rng: Chance) -> None:
        """Start a server, in place of another if there are many; a call may be going to kill it."""
        if len(self.servers) == MOST:
            self.drop(self.one_server(rng))
        mode = list(MODES)[rng.integers(len(MODES))]
        die_at = death(rng) if rng.random() < 0.3 else None
        self.servers.append(Serving(self.path, self.history, mode, self.folder, die_at))

    def change_served(self, rng: Chance, sources: Sequence[Source] = SOURCES) -> None:
        """Change the index of a server."""
        serving, wish = self.one_server(rng), self.wish(rng, sources)
        self.tried(serving, lambda: self.asked(serving, wish))

    def asked(self, serving: Serving, wish: Wish) -> Answer:
        """Ask a server for a change, and look for it."""
        answer = serving.change(wish)
        if answer.status == 200:
            serving.check_seen(answer.changes)
        else:
            refusals = (409, 422) if serving.may_be_stale else (422,)
            assert answer.status in refusals, answer
        return answer

    def kill_changing_server(self, rng: Chance) -> None:
        """Kill a server while it changes its index."""
        serving, wish = self.one_server(rng), self.wish(rng)
        seconds = rng.random() * MOST_SECONDS
        killing = Timer(seconds, serving.server.process.send, (signal.SIGKILL,))
        with suppress(DeadError):  # it may have been killed at a call before
            assert serving.server.client  # it takes connections
            killing.start()
            self.tell(self.asked(serving, wish))
        if killing.is_alive():
            killing.join()
        self.drop(serving)

    def end_server(self, rng: Chance) -> None:
        """End a server by SIGTERM: it saves what has changed."""
        serving = self.one_server(rng)
        self.servers.remove(serving)
        serving.end()

    def tidy_served(self, rng: Chance) -> None:
        """Let a server save what has changed, or load what others have saved."""
        serving = self.one_server(rng)
        self.tried(serving, serving.save if rng.random() < 0.5 else serving.reload)

    # snapshots

    def snapshot(self, rng: Chance) -> None:
        """Keep the index as it is; what is killed meanwhile leaves a whole snapshot, or none."""
        if len(self.snapshots) == MOST_SNAPSHOTS:
            return
        name, begin = f"s{len(self.snapshots)}", time.monotonic()
        is_done = self.worked("snapshot", name, rng)
        path = self.path / "snapshots" / name
        assert path.exists() or not is_done
        if path.exists():
            index = load(path)
            self.snapshots[name] = Snapshot(self.checked(index, begin), set(index.space_names))

    def restore(self, rng: Chance) -> None:
        """Make the index what it was: what was acknowledged since then is undone."""
        if not self.snapshots:
            return
        name = sorted(self.snapshots)[rng.integers(len(self.snapshots))]
        for serving in self.servers:
            serving.undo()
        begin, kept = time.monotonic(), self.snapshots[name]
        is_done = self.worked("restore", name, rng)
        self.history.restore(kept.content, begin, is_made=is_done)
        self.spaces = set(kept.spaces if is_done else kept.spaces & self.spaces)

    def worked(self, work: str, name: str, rng: Chance) -> bool:
        """Do something with a snapshot; False if what did it was killed."""
        chance = rng.random()
        self.tell(name, chance)
        if chance < 0.5:
            self.ask_once(work, name)
            return True
        die_at = death(rng) if chance > 0.8 else None
        code, said = Command(self.folder, work, str(self.path), name, die_at=die_at).join()
        assert code == 0 or (code == -signal.SIGKILL and die_at), said
        return code == 0

    def replace(self, rng: Chance) -> None:
        """Put another index in its place, which has to be asked for: all changes are undone."""
        numbers = self.wishes.fresh(int(rng.integers(1, N)))
        with pytest.raises(RefusedError, match="FileExistsError"):
            self.ask_once("replace", numbers, False)
        for serving in self.servers:
            serving.undo()
        begin = time.monotonic()
        self.ask_once("replace", numbers, True)
        content = {id_: Value(number) for id_, number in enumerate(numbers)}
        self.history.restore(content, begin)
        self.spaces = set()

    def ask_once(self, work: str, *arguments: object) -> None:
        """Let a process that is started for it do something."""
        worker = Worker(self.path)
        try:
            worker.call(work, *arguments)
        finally:
            worker.close()

    # the law

    def check(self, _: Chance) -> None:
        """Load the index: every acknowledged change is there."""
        begin = time.monotonic()
        index = load(self.path)
        content = self.checked(index, begin)
        assert self.spaces <= set(index.space_names), (self.spaces, index.space_names)
        model = Model()
        model.vectors = {id_: vector_of(value.number or 0) for id_, value in content.items()}
        check_answers(index, model, vectors_of([0, N]))
        if content:
            index.update([min(content)], vectors_of([N]))  # in memory, to look at what it is
            check_structure(index)

    def checked(self, index: RoutingIndex, begin: float) -> dict[int, Value]:
        """The content of an index that was read since then, which has to be possible."""
        content = content_of(index, self.wishes.number_of)
        faults = self.history.faults(content, begin, time.monotonic())
        assert not faults, "\n".join(faults)
        return content

    def end(self, rng: Chance) -> None:
        """All that servers have is saved, and all of them serve it; snapshots have not changed."""
        for _ in range(2):
            for serving in list(self.servers):
                self.tried(serving, serving.reload)
            for serving in list(self.servers):
                self.tried(serving, serving.save)
        self.check(rng)
        n_vectors = len(load(self.path))
        for serving in self.servers:
            assert serving.n_vectors() == n_vectors, serving
        while self.servers:
            self.end_server(rng)
        self.check(rng)
        for name, snapshot in self.snapshots.items():
            kept = content_of(load(self.path / "snapshots" / name), self.wishes.number_of)
            assert kept == snapshot.content, name

    def teardown(self) -> None:
        """Check the law, and end all processes."""
        try:
            if not self.has_failed:
                self.told.append("the end")
                self.end(np.random.default_rng(0))
        except Exception as error:
            self.explain(error)
            raise
        finally:
            for process in itertools.chain[Plain | Serving](self.plain, self.servers):
                process.close()
            shutil.rmtree(self.folder)


TestSharedDirectory = SharedDirectory.TestCase
TestSharedDirectory.settings = settings(
    max_examples=6 * EFFORT,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # what processes do differs each time
    suppress_health_check=list(HealthCheck),
)


def two_loaded(path: Path) -> tuple[RoutingIndex, RoutingIndex]:
    """An index as two processes have loaded it."""
    RoutingIndex.build(vectors_of(range(N)), degree=8, ef_construction=40).save(path)
    return load(path), load(path)


@pytest.mark.parametrize("way", ["save", "commit"])
def test_a_name_keeps_the_vector_of_others(tmp_path: Path, way: str) -> None:
    """To name an id that others have updated or deleted does not undo that."""
    one, other = two_loaded(tmp_path / "index")
    other.update([7], vectors_of([N]))
    other.delete([8])
    getattr(other, way)()
    one.name(Labels.of(["seven", "eight"], [7, 8]))
    getattr(one, way)()
    found = load(tmp_path / "index")
    assert found.names.names([7]) == ["seven"]
    assert np.array_equal(found.vectors([7]), vectors_of([N]))
    assert 8 not in found


@pytest.mark.parametrize("way", ["save", "commit"])
def test_a_vector_keeps_the_name_of_others(tmp_path: Path, way: str) -> None:
    """To update an id that others have named does not undo that."""
    one, other = two_loaded(tmp_path / "index")
    other.name(Labels.of(["seven"], [7]))
    getattr(other, way)()
    one.update([7], vectors_of([N]))
    getattr(one, way)()
    found = load(tmp_path / "index")
    assert found.names.names([7]) == ["seven"]
    assert np.array_equal(found.vectors([7]), vectors_of([N]))


@pytest.mark.parametrize("way", ["save", "commit"])
def test_an_id_that_others_replace_has_a_name(tmp_path: Path, way: str) -> None:
    """An id that is named here, and deleted and added under a name elsewhere, has one of both."""
    one, other = two_loaded(tmp_path / "index")
    one.name(Labels.of(["here"], [7]))
    other.delete([7])
    getattr(other, way)()
    other.add(vectors_of([N]), [7], names=["there"])
    getattr(other, way)()
    one.save()
    assert load(tmp_path / "index").names.names([7])[0] in ("here", "there")


@pytest.mark.parametrize("way", ["save", "commit"])
def test_a_snapshot_cannot_be_changed(tmp_path: Path, way: str) -> None:
    """A snapshot that is loaded and changed stays what it was, and as old as it was."""
    index, _ = two_loaded(tmp_path / "index")
    for name in ("a", "b"):
        index.snapshot(name)
    path = tmp_path / "index" / "snapshots" / "a"
    files = {each.name: each.read_bytes() for each in path.iterdir()}
    kept = load(path)
    kept.add(vectors_of([N]))
    with pytest.raises(ValueError, match="expected"):
        getattr(kept, way)()
    assert {each.name: each.read_bytes() for each in path.iterdir()} == files
    assert [each.name for each in index.versions()] == ["a", "b"]


def test_a_record_that_is_too_large_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that the journal has no room for are saved or refused: readers would ignore them."""
    index, _ = two_loaded(tmp_path / "index")
    monkeypatch.setattr(journal, "MAX_RECORD_BYTES", 1000)
    index.add(vectors_of(range(N, 2 * N)))
    with suppress(ValueError):
        index.commit()
        assert len(load(tmp_path / "index")) == 2 * N
