"""Cluster: a sharded index that answers from replicas of its shards on a Ray cluster."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.asking import Asking, Call, Turns
from l2route.cluster.changes import Changes
from l2route.cluster.errors import ClusterWarning, PartialError
from l2route.cluster.fleet import Fleet, FleetOptions
from l2route.cluster.latencies import Hedges, Latencies
from l2route.cluster.manifest import Point, size_now
from l2route.cluster.merge import Answer, ClusterResult, merge
from l2route.cluster.operating import find_point
from l2route.cluster.rays import Address, connected
from l2route.cluster.router import Kind
from l2route.cluster.shard import Asked
from l2route.cluster.sharded import Sharded, asked_of, info_of, needed_validation
from l2route.data.vectors import check_vectors
from l2route.search.calibrate import OutOfReachError
from l2route.search.limits import Limits
from l2route.search.searcher import check_queries
from l2route.state.changing import checked_ids

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Partial = Literal["allow", "fail"]
STATUS_SECONDS = 10.0
"""Seconds to wait for what shards say about themselves."""


class Cluster(Sharded):
    """A sharded index on a Ray cluster: an actor for every replica of every shard.

    Any number of threads may search. Each batch asks every shard that the router names once, and a
    second replica if the first is late or gone. Changes of one `Cluster` run one after another.

    Args:
        path: directory that all nodes see, or URL of fsspec.
        replicas: actors of each shard; by default as the index was built for.
        address: of a Ray cluster: "auto" for that of this machine; None for the one that this
            process has joined, or a new one.
        name: name under which several processes share the actors, which outlive them until one of
            them calls `shutdown`; None for actors that end with this object.
        cpus: cores that Ray reserves for an actor.
        threads: threads of a search in an actor.
        n_bytes: memory that Ray reserves for an actor; by default one and a half times the bytes
            of the largest shard as it is now.
        mmap: map shards instead of reading them.
        timeout: seconds for a search or a change, unless a call says otherwise.
        hedge: seconds after which a second replica is asked; by default from measured latencies.
        max_running: batches that are searched at the same time.
        max_waiting: batches that may wait for others; more are refused by a QueueFullError.
        wait: seconds to wait at the start until some replica of each shard is ready; a warning
            names those that are not.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        replicas: int | None = None,
        address: Address = None,
        name: str | None = None,
        cpus: float = 1.0,
        threads: int = 1,
        n_bytes: int | None = None,
        mmap: bool = False,
        timeout: float = 10.0,
        hedge: float | None = None,
        max_running: int = 8,
        max_waiting: int = 64,
        wait: float = 60.0,
    ) -> None:
        super().__init__(path if "://" in str(path) else Path(path).absolute())
        if timeout <= 0 or max_running < 1 or max_waiting < 0:
            got = f"{timeout}, {max_running} and {max_waiting}"
            raise ValueError(f"expected a time-out above 0 and room for batches, got {got}")
        self.sizes = [size_now(self.folder, shard) for shard in self.manifest.shards]
        """Vectors and bytes of the shards, as each has said last."""
        if n_bytes is None:
            n_bytes = int(1.5 * max(size for _, size in self.sizes))
        chosen = self.manifest.replicas if replicas is None else replicas
        options = FleetOptions(chosen, cpus, threads, n_bytes, name, mmap)
        self._ray = connected(address)
        self.fleet = Fleet(self._ray, self, options)
        self._timeout, self._hedge, self._is_shared = timeout, hedge, name is not None
        self._latencies, self._hedges = Latencies(), Hedges()
        self._turns = Turns(max_running, max_waiting)
        this = ref(self)  # no circle: actors end when nobody has this object

        def ask(calls: dict[int, Call], seconds: float) -> dict[int, Any]:
            cluster = this()
            assert cluster is not None  # who changes it has it
            return cluster._needed(calls, seconds)

        self._changes = Changes(self.n_shards, self.router.partition, ask, self.folder)
        self._calibrating, self._out_of_reach = Lock(), dict[tuple[float, int], str]()
        self._given_up: frozenset[int] = frozenset()
        self.n_hedged = 0
        """Calls that were sent to a second replica because the first was late."""
        try:
            self._wait_for_shards(wait)
        except BaseException:
            self.close()
            raise

    def _wait_for_shards(self, seconds: float) -> None:
        """Wait until some replica of each shard is ready; warn of those that are not."""
        lacking = self.fleet.lacking()
        if lacking is not None:
            message = f"{lacking}: shards without room wait for it"
            warnings.warn(message, ClusterWarning, stacklevel=3)
        said, missing = self._of_each("ready", seconds)
        self._changes.finish(
            [move for each in said.values() for move in each["moves"]], STATUS_SECONDS
        )
        if missing:
            message = f"not all shards are ready: {'; '.join(missing.values())}"
            warnings.warn(message, ClusterWarning, stacklevel=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors, unless they are shared."""
        if not self._is_shared:
            self.fleet.close()

    def shutdown(self) -> None:
        """End the actors, also those that are shared."""
        self.fleet.close()

    def search(
        self,
        queries: object,
        k: int = 10,
        *,
        recall: float | None = None,
        n_probe: int | None = None,
        router: Kind | None = None,
        budget: int | None = None,
        ef: int | None = None,
        slack: float | None = None,
        rerank: int | None = None,
        where: object = None,
        partial: Partial = "fail",
        timeout: float | None = None,
    ) -> ClusterResult:
        """Find the k nearest neighbours of each query over the shards.

        The answers are those of `ShardedIndex.search`, which has the same arguments.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query.
            recall: recall@k to reach, over shards asked and the recall within them. If it was not
                measured, it is measured first, which may take longer than the time-out. With a
                filter every shard is asked for that recall.
            n_probe: shards that each query asks: the best by the router.
            router: scores for `n_probe`: centroids or learned; by default what there is.
            budget: as in `RoutingIndex.search`, within every shard that is asked.
            ef: as in `RoutingIndex.search`.
            slack: as in `RoutingIndex.search`.
            rerank: as in `RoutingIndex.search`.
            where: ids that may be answers [n].
            partial: "fail": a shard that gives no answer is an error, a `PartialError`; "allow":
                the answers of the others are returned, with their `coverage`.
            timeout: seconds for all of it.
        """
        rows = check_queries(queries, self.dim)
        if partial not in ("allow", "fail"):
            raise ValueError(f"expected partial to be allow or fail, got {partial!r}")
        point = None
        if recall is not None and n_probe is None:
            point = self.point_for(recall, k, is_filtered=where is not None)
        asked = asked_of(k, Limits(budget, ef, slack, rerank), recall, point, where)
        chosen = self.chosen(rows, point, n_probe, router)
        cost = self.cost(point, n_probe, router)
        return self._searched(rows, asked, chosen, cost, partial, timeout or self._timeout)

    def _searched(
        self,
        rows: Floats,
        asked: Asked,
        chosen: NDArray[np.bool_],
        cost: float,
        partial: Partial,
        timeout: float,
    ) -> ClusterResult:
        wanted = {
            shard: np.flatnonzero(chosen[:, shard])
            for shard in range(self.n_shards)
            if chosen[:, shard].any()
        }
        calls = {shard: self._search_call(shard, rows[at], asked) for shard, at in wanted.items()}
        deadline = time.monotonic() + timeout
        with self._turns.taken(timeout):
            left = max(0.001, deadline - time.monotonic())
            answers, missing = self._asked(calls, left, is_search=True)
        if missing and partial == "fail":
            raise PartialError(f"expected all shards to answer, got {'; '.join(missing.values())}")
        found = [
            Answer(shard, wanted[shard], each.ids, each.distances, each.counts, each.computed)
            for shard, each in sorted(answers.items())
        ]
        lost = sorted(missing)
        sizes = [n_vectors for n_vectors, _ in self.sizes]
        return merge(
            found,
            len(rows),
            asked.k,
            self.dim,
            router_cost=cost,
            missed=chosen[:, lost].sum(axis=1).astype(np.int32),
            missing=tuple(lost),
            coverage=1 - sum(sizes[shard] for shard in lost) / max(1, sum(sizes)),
        )

    def _search_call(self, shard: int, rows: Floats, asked: Asked) -> Call:
        hedge = self._latencies.delay(len(rows)) if self._hedge is None else self._hedge
        return Call("search", "search", (rows, asked, self._changes.version(shard)), hedge)

    def _asked(
        self, calls: dict[int, Call], timeout: float, *, is_search: bool = False
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Answers by shard, and why there is none from others."""
        sizes = {shard: len(call.arguments[0]) for shard, call in calls.items() if is_search}

        def note(shard: int, seconds: float) -> None:
            if is_search:
                self._latencies.note(sizes[shard], seconds)

        self._hedges.note_calls(len(calls))
        asking = Asking(self._ray, self.fleet, calls, timeout, self._given_up, note, self._hedges)
        asking.run()
        self.n_hedged += asking.n_hedged
        for shard, answer in asking.answers.items():
            self._note_size(shard, answer)
        self._given_up = (self._given_up - set(asking.answers)) | set(asking.missing)
        return asking.answers, asking.missing

    def _note_size(self, shard: int, answer: Any) -> None:
        """Keep the size that a shard says with an answer, if it does."""
        if isinstance(answer, dict):
            self.sizes[shard] = (answer["n_vectors"], answer["n_bytes"])
        elif hasattr(answer, "n_vectors"):
            self.sizes[shard] = (answer.n_vectors, self.sizes[shard][1])

    def point_for(self, recall: float, k: int, *, is_filtered: bool = False) -> Point:
        """The setting that reaches a recall; it is measured once, whatever threads ask for it."""
        known = self.known_point(recall, k, is_filtered=is_filtered)
        if known is not None:
            return known
        with self._calibrating:
            known = self.known_point(recall, k)
            if known is not None:
                return known
            if (recall, k) in self._out_of_reach:
                raise OutOfReachError(self._out_of_reach[recall, k])
            try:
                return self.calibrate(recall, k)
            except OutOfReachError as error:
                self._out_of_reach[recall, k] = str(error)
                raise

    def calibrate(
        self, recall: float, k: int = 10, *, router: Kind | None = None, save: bool = False
    ) -> Point:
        """Find what reaches a recall@k on the validation queries, and keep it.

        Args:
            recall: recall@k to reach on merged answers.
            k: answers per query.
            router: scores to use; by default what the router has.
            save: whether to write it into the manifest.
        """

        def ask_all(queries: Floats, k: int, inner: float) -> list[Answer]:
            asked, at = Asked(k, recall=inner), np.arange(len(queries))
            calls = {s: self._search_call(s, queries, asked) for s in range(self.n_shards)}
            slow = {s: call._replace(hedge=float("inf")) for s, call in calls.items()}
            found = self._needed(slow, 60 * self._timeout)
            return [Answer(s, at, *each[:4]) for s, each in sorted(found.items())]

        queries, truth = needed_validation(self)
        point = find_point(self.router, queries, truth, ask_all, k, recall, router)
        self.keep(point, save=save)
        return point

    def _needed(self, calls: dict[int, Call], timeout: float) -> dict[int, Any]:
        """Answers of all shards; an error if one gives none."""
        answers, missing = self._asked(calls, timeout)
        if missing:
            raise PartialError(f"expected all shards to answer, got {'; '.join(missing.values())}")
        return answers

    def add(self, vectors: object, ids: object = None, *, timeout: float | None = None) -> Ids:
        """Add vectors to the shards that they belong to; they are saved there when it returns.

        A shard gets all of its vectors or none. If a shard fails, those of others may be added
        already. The `PartialError` then has the `ids` of the vectors: with these the same call may
        be repeated.

        Args:
            vectors: [n, dim], or one vector [dim].
            ids: their ids [n], which the index does not have; by default those after the largest.
            timeout: seconds for all of it.

        Returns:
            The ids of the vectors [n].
        """
        rows = self._checked_rows(vectors)
        chosen = None if ids is None else checked_ids(ids, len(rows))
        return self._changes.add(rows, chosen, timeout or self._timeout)

    def update(self, ids: object, vectors: object, *, timeout: float | None = None) -> None:
        """Give ids new vectors, which may move to other shards; saved when it returns.

        After a `PartialError` the same call may be repeated.

        Args:
            ids: ids of the index [n], distinct.
            vectors: their new vectors [n, dim].
            timeout: seconds for all of it.
        """
        rows = self._checked_rows(vectors)
        self._changes.update(checked_ids(ids, len(rows)), rows, timeout or self._timeout)

    def delete(self, ids: object, *, timeout: float | None = None) -> None:
        """Delete vectors; when it returns, that is saved, and no search finds them.

        If an id is unknown or repeated, nothing is deleted. After a `PartialError` the same call
        may be repeated.

        Args:
            ids: ids of the index [n].
            timeout: seconds for all of it.
        """
        self._changes.delete(checked_ids(ids), timeout or self._timeout)

    def _checked_rows(self, vectors: object) -> Floats:
        given = np.atleast_2d(np.asarray(vectors))
        return check_vectors("vectors", given, self.dim, may_be_empty=True)

    def _of_each(self, method: str, seconds: float) -> tuple[dict[int, Any], dict[int, str]]:
        """What shards say about themselves, and why others say nothing."""
        calls = {shard: Call(method, "status", ()) for shard in range(self.n_shards)}
        return self._asked(calls, seconds)

    def info(self) -> dict[str, Any]:
        """Summary of the index and of its replicas, as a dict of plain values."""
        said, _ = self._of_each("facts", STATUS_SECONDS)
        facts = info_of(self, [said.get(shard) for shard in range(self.n_shards)], self.sizes)
        return facts | {
            "replicas": len(self.fleet.members[0]),
            "n_hedged": self.n_hedged,
            "n_running": self._turns.n_running,
            "n_waiting": self._turns.n_waiting,
        }
