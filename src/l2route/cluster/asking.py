"""One batch of calls, at most one answer from each shard: failures, late replicas, deadlines.

And how many batches there may be at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any, NamedTuple

from l2route.cluster.errors import LateError, QueueFullError, ShardError
from l2route.cluster.fleet import Fleet, Member
from l2route.cluster.latencies import Hedges

RETRY_SECONDS = 0.05
"""Seconds between two tries while no replica of a shard is up."""
MAX_IN_FLIGHT = 32
"""Calls that may wait in one replica; a replica with more is not asked."""


class Call(NamedTuple):
    """A method of replicas and its arguments, for one shard."""

    method: str
    group: str
    arguments: tuple[Any, ...]
    hedge: float = float("inf")
    """Seconds after which another replica is asked too."""
    sticky: bool = False
    """Whether replicas are asked in their order, as for changes, and not by their load."""


@dataclass(slots=True)
class _Waiting:
    """A shard whose answer has not come."""

    call: Call
    tried: list[Member] = field(default_factory=list)
    """Replicas that were asked and have not answered."""
    refused: dict[int, str] = field(default_factory=dict)
    """Why replicas cannot open their shard, by number."""
    hedge_at: float = float("inf")
    retry_at: float = float("inf")


class Ended(NamedTuple):
    """The end of one call."""

    shard: int
    member: Member
    actor: Any
    value: Any
    error: BaseException | None
    seconds: float


class Asking:
    """Calls to several shards, until each has answered or cannot.

    Args:
        ray: the package.
        fleet: the replicas.
        calls: what each shard is asked, by number.
        timeout: seconds for all of it.
        given_up: shards that did not answer last time: they get one try.
        on_answer: called with the number of the shard and the seconds of every answer.
        hedges: the right to ask second replicas; by default without a bound.
    """

    def __init__(
        self,
        ray: Any,
        fleet: Fleet,
        calls: Mapping[int, Call],
        timeout: float,
        given_up: frozenset[int] = frozenset(),
        on_answer: Callable[[int, float], None] | None = None,
        hedges: Hedges | None = None,
    ) -> None:
        self._ray, self._fleet, self._on_answer = ray, fleet, on_answer
        self._deadline = time.monotonic() + timeout
        self._given_up, self._hedges = given_up, hedges
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._waiting = {shard: _Waiting(call) for shard, call in calls.items()}
        self.answers: dict[int, Any] = {}
        self.missing: dict[int, str] = {}
        """Why shards gave no answer."""
        self.n_hedged = 0

    def run(self) -> None:
        """Ask, and wait for all answers."""
        for shard in list(self._waiting):
            self._ask(shard)
        while self._waiting:
            now = time.monotonic()
            if now >= self._deadline:
                break
            try:
                self._note(self._ended.get(timeout=self._next_moment() - now))
            except Empty:
                self._look_at_clock()
            else:
                self._look_at_clock()
        for shard in self._waiting:
            self.missing[shard] = f"shard {shard} gave no answer in time"
        self._waiting.clear()

    def _next_moment(self) -> float:
        """When something is to be done if no answer comes; not before a moment from now."""
        moments = (min(each.hedge_at, each.retry_at) for each in self._waiting.values())
        return max(min(self._deadline, *moments), time.monotonic() + 1e-4)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for shard, waiting in list(self._waiting.items()):
            if now >= waiting.retry_at:
                waiting.retry_at = float("inf")
                self._ask(shard)
            elif now >= waiting.hedge_at:
                waiting.hedge_at = float("inf")
                if self._may_hedge(shard, waiting):
                    self.n_hedged += 1
                    self._ask(shard)

    def _may_hedge(self, shard: int, waiting: _Waiting) -> bool:
        """Whether another replica is less busy than the late one, and may be asked too."""
        other = self._chosen(shard)
        if other is None or not waiting.tried:
            return False
        if other.n_in_flight >= waiting.tried[0].n_in_flight:
            return False  # its answer would be late too, and make others late
        return self._hedges is None or self._hedges.take()

    def _chosen(self, shard: int) -> Member | None:
        """The replica to ask next: one that is up and not late before others, then the least busy.

        Among equals it is the one that was asked least, so that none is forgotten while it is gone.
        """
        waiting = self._waiting[shard]
        able = [
            member
            for member in self._fleet.members[shard]
            if member not in waiting.tried
            and member.replica not in waiting.refused
            and member.n_in_flight < MAX_IN_FLIGHT
        ]
        if not able:
            return None
        if waiting.call.sticky:
            return min(able, key=lambda each: (each.is_down, each.is_late, each.replica))
        return min(
            able, key=lambda each: (each.is_down, each.is_late, each.n_in_flight, each.n_sent)
        )

    def _ask(self, shard: int) -> None:
        waiting = self._waiting[shard]
        member = self._chosen(shard)
        if member is None:
            if not waiting.tried:
                waiting.retry_at = time.monotonic() + RETRY_SECONDS  # all are busy
            return
        waiting.tried.append(member)
        call, actor, began = waiting.call, member.actor, time.monotonic()
        sent = member.began(self._deadline)
        method = getattr(actor, call.method).options(concurrency_group=call.group)

        def end(future: Any) -> None:
            member.ended(sent)
            error = future.exception()
            value = None if error is not None else future.result()
            seconds = time.monotonic() - began
            self._ended.put(Ended(shard, member, actor, value, error, seconds))

        try:
            method.remote(*call.arguments).future().add_done_callback(end)
        except self._ray.exceptions.RayError as error:  # an actor that is known to be gone
            member.ended(sent)
            self._ended.put(Ended(shard, member, actor, None, error, 0.0))
            return
        if len(waiting.tried) == 1:
            waiting.hedge_at = began + call.hedge

    def _note(self, ended: Ended) -> None:
        """Take an answer, or ask another replica."""
        if ended.error is None and self._on_answer is not None:
            self._on_answer(ended.shard, ended.seconds)
        waiting = self._waiting.get(ended.shard)
        if waiting is None:
            return  # the answer of a replica that was late
        if ended.error is None:
            self.answers[ended.shard] = ended.value
            del self._waiting[ended.shard]
            return
        if ended.member in waiting.tried:
            waiting.tried.remove(ended.member)
        self._fail(ended, waiting)

    def _fail(self, ended: Ended, waiting: _Waiting) -> None:
        error, exceptions = ended.error, self._ray.exceptions
        cause = getattr(error, "cause", None)
        if isinstance(error, ShardError) or isinstance(cause, ShardError):
            waiting.refused[ended.member.replica] = str(cause or error)
            if len(waiting.refused) == len(self._fleet.members[ended.shard]):
                self._give_up(ended.shard, str(cause or error))
                return
        elif isinstance(cause, LateError):
            self._give_up(ended.shard, str(cause))
            return
        elif isinstance(error, exceptions.RayTaskError) and cause is not None:
            raise cause  # what was asked is wrong, whoever is asked
        elif isinstance(error, exceptions.RayError):
            if isinstance(error, exceptions.ActorDiedError):
                self._fleet.revive(ended.member, ended.actor)
            ended.member.note_failure()
        else:
            assert error is not None
            raise error
        if waiting.tried:
            return  # another replica has been asked already
        others = [m for m in self._fleet.members[ended.shard] if m is not ended.member]
        if any(not m.is_down and m.replica not in waiting.refused for m in others):
            self._ask(ended.shard)
        elif ended.shard in self._given_up:
            self._give_up(ended.shard, f"shard {ended.shard}: {' '.join(str(error).split())[:200]}")
        else:
            waiting.retry_at = time.monotonic() + RETRY_SECONDS

    def _give_up(self, shard: int, why: str) -> None:
        self.missing[shard] = why
        del self._waiting[shard]


class Turns:
    """Room for a number of batches at a time; others wait, and beyond a number are refused."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._max_running, self._max_waiting = max_running, max_waiting
        self._changed = Condition()
        self.n_running = self.n_waiting = 0

    @contextmanager
    def taken(self, seconds: float) -> Iterator[None]:
        """Wait for room, and hold it."""
        with self._changed:
            if self.n_running >= self._max_running:
                self._wait(seconds)
            self.n_running += 1
        try:
            yield
        finally:
            with self._changed:
                self.n_running -= 1
                self._changed.notify()

    def _wait(self, seconds: float) -> None:
        if self.n_waiting >= self._max_waiting:
            raise QueueFullError(f"expected at most {self._max_waiting} batches to wait, got more")
        self.n_waiting += 1
        try:
            has_room = self._changed.wait_for(
                lambda: self.n_running < self._max_running, timeout=seconds
            )
        finally:
            self.n_waiting -= 1
        if not has_room:
            raise QueueFullError(f"expected room for a batch within {seconds:g} s, got none")
