"""The fleet: an actor of Ray for every replica of every shard, spread over the nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from l2route.cluster.replica import Replica
from l2route.cluster.sharded import Sharded

NAMESPACE = "l2route"
"""Where actors that several processes share have their names."""
DOWN_SECONDS = 0.2
"""Seconds for which a replica that failed is asked only if there is no other."""
GROUPS = {"search": 2, "change": 1, "status": 1}
"""Threads of an actor: changes do not wait for searches, nor searches for changes."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How replicas are placed."""

    replicas: int = 1
    """Actors of each shard."""
    cpus: float = 1.0
    """Cores that Ray reserves for an actor."""
    threads: int = 1
    """Threads of a search."""
    n_bytes: int = 0
    """Memory that Ray reserves for an actor; 0 for none."""
    name: str | None = None
    """Name under which processes share actors, which then outlive them; None for own actors."""
    mmap: bool = False
    """Whether shards are mapped instead of read."""

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.cpus < 0 or self.threads < 1 or self.n_bytes < 0:
            raise ValueError(f"expected replicas, threads and resources of a machine, got {self}")


@dataclass(slots=True, eq=False)
class Member:
    """A replica as its callers see it."""

    shard: int
    replica: int
    actor: Any
    n_in_flight: int = 0
    """Calls that were sent and have not ended."""
    n_sent: int = 0
    """Calls that were ever sent."""
    down_until: float = 0.0
    """Moment until which others are preferred."""
    lock: Lock = field(default_factory=Lock)

    @property
    def is_down(self) -> bool:
        """Whether it failed a moment ago."""
        return time.monotonic() < self.down_until

    def note_failure(self) -> None:
        """Prefer others for a while."""
        self.down_until = time.monotonic() + DOWN_SECONDS

    def began(self) -> None:
        """Count a call."""
        with self.lock:
            self.n_in_flight += 1
            self.n_sent += 1

    def ended(self) -> None:
        """Count the end of a call."""
        with self.lock:
            self.n_in_flight -= 1


class Fleet:
    """All replicas of a sharded index.

    Args:
        ray: the package, connected to a cluster.
        sharded: the sharded index.
        options: how replicas are placed.
    """

    def __init__(self, ray: Any, sharded: Sharded, options: FleetOptions) -> None:
        self._ray, self._sharded, self._options = ray, sharded, options
        self._kind = ray.remote(concurrency_groups=GROUPS)(Replica)
        self._groups = [self._placement(shard) for shard in range(sharded.n_shards)]
        self._reviving = Lock()
        self.members = [
            [Member(shard, replica, self._started(shard, replica)) for replica in self._numbers]
            for shard in range(sharded.n_shards)
        ]

    @property
    def _numbers(self) -> range:
        return range(self._options.replicas)

    def _label(self, *parts: int) -> str | None:
        """The name of an actor or a group that processes share; None for own ones."""
        if self._options.name is None:
            return None
        return "/".join([self._options.name, self._sharded.manifest.build[:8], *map(str, parts)])

    def _placement(self, shard: int) -> Any:
        """Room for the replicas of a shard, on as many nodes as there are."""
        from ray.util import get_placement_group, placement_group

        needs: dict[str, float] = {"CPU": self._options.cpus}
        if self._options.n_bytes:
            needs["memory"] = float(self._options.n_bytes)
        bundles = [dict(needs) for _ in self._numbers]
        label = self._label(shard)
        if label is None:
            return placement_group(bundles, strategy="SPREAD")
        try:
            return get_placement_group(label)
        except ValueError:
            pass
        try:
            return placement_group(bundles, strategy="SPREAD", name=label, lifetime="detached")
        except Exception:  # another process was faster
            return get_placement_group(label)

    def _started(self, shard: int, replica: int) -> Any:
        """An actor for a replica, which Ray starts again wherever there is room if it ends."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        options: dict[str, Any] = {
            "num_cpus": self._options.cpus,
            "max_restarts": -1,
            "max_task_retries": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._groups[shard], placement_group_bundle_index=replica
            ),
        }
        if self._options.n_bytes:
            options["memory"] = self._options.n_bytes
        label = self._label(shard, replica)
        if label is not None:
            options |= {"name": label, "namespace": NAMESPACE, "lifetime": "detached"}
            options["get_if_exists"] = True
        url, threads = self._sharded.folder.url, self._options.threads
        return self._kind.options(**options).remote(url, shard, threads, self._options.mmap)

    def lacking(self) -> str | None:
        """What the nodes do not have enough of for all actors; None if they have."""
        n_actors = self._sharded.n_shards * self._options.replicas
        there = self._ray.cluster_resources()
        cpus, n_bytes = self._options.cpus, self._options.n_bytes
        for resource, each, unit in (("CPU", cpus, "cores"), ("memory", n_bytes, "bytes")):
            needed, got = n_actors * each, there.get(resource, 0)
            if needed > got + 1e-9:
                needs = f"{needed:,.12g} {unit} for {n_actors} actors, {each:,.12g} each"
                return f"expected {needs}, got a Ray cluster with {got:,.12g}"
        return None

    def revive(self, member: Member, actor: Any) -> None:
        """Start another actor in place of one that Ray does not start again."""
        with self._reviving:
            if member.actor is actor:
                member.actor = self._started(member.shard, member.replica)

    def close(self) -> None:
        """End all actors, and give back their room."""
        from ray.util import remove_placement_group

        for member in (each for group in self.members for each in group):
            self._ray.kill(member.actor)
        for group in self._groups:
            remove_placement_group(group)
