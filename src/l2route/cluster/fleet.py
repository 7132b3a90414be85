"""The fleet: an actor of Ray for every replica of every shard, spread over the nodes."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from l2route.cluster.replica import Replica
from l2route.cluster.sharded import Sharded

NAMESPACE = "l2route"
"""Where actors that several processes share have their names."""
DOWN_SECONDS = 0.2
"""Seconds for which a replica that failed is asked only if there is no other."""
NODE = "ray.io/node-id"
"""The label by which Ray knows a node."""
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
    in_flight: dict[int, float] = field(default_factory=dict)
    """Calls that were sent and have not ended, and when each is given up."""
    n_sent: int = 0
    """Calls that were ever sent."""
    down_until: float = 0.0
    """Moment until which others are preferred."""
    lock: Lock = field(default_factory=Lock)

    @property
    def n_in_flight(self) -> int:
        """Calls that were sent and have not ended."""
        return len(self.in_flight)

    @property
    def is_late(self) -> bool:
        """Whether a call that was given up has not ended: the replica may hang."""
        with self.lock:
            return min(self.in_flight.values(), default=float("inf")) < time.monotonic()

    @property
    def is_down(self) -> bool:
        """Whether it failed a moment ago."""
        return time.monotonic() < self.down_until

    def note_failure(self) -> None:
        """Prefer others for a while."""
        self.down_until = time.monotonic() + DOWN_SECONDS

    def began(self, deadline: float) -> int:
        """Note a call that is given up at a moment, and return its number."""
        with self.lock:
            self.n_sent += 1
            self.in_flight[self.n_sent] = deadline
            return self.n_sent

    def ended(self, number: int) -> None:
        """Note the end of a call."""
        with self.lock:
            del self.in_flight[number]


class Fleet:
    """All replicas of a sharded index.

    Room on the nodes is reserved by the actors alone, so that it is free when they end.

    Args:
        ray: the package, connected to a cluster.
        sharded: the sharded index.
        options: how replicas are placed.
    """

    def __init__(self, ray: Any, sharded: Sharded, options: FleetOptions) -> None:
        self._ray, self._options = ray, options
        self._url, self._n_shards = sharded.folder.url, sharded.n_shards  # not what has the fleet
        self._build = sharded.manifest.build
        self._kind = ray.remote(concurrency_groups=GROUPS)(Replica)
        self._lock, self._is_closed = Lock(), False
        nodes = self._nodes()
        self._homes = [_homes(nodes, shard, options.replicas) for shard in range(self._n_shards)]
        self.members = [
            [
                Member(shard, replica, self._started(shard, replica, nodes))
                for replica in range(options.replicas)
            ]
            for shard in range(self._n_shards)
        ]

    def _nodes(self) -> list[str]:
        """Nodes that have what an actor needs, if nothing else runs there."""
        needs = {"CPU": self._options.cpus, "memory": self._options.n_bytes}
        return sorted(
            node["NodeID"]
            for node in self._ray.nodes()
            if node["Alive"]
            and all(node["Resources"].get(name, 0) >= each for name, each in needs.items())
        )

    def _started(self, shard: int, replica: int, nodes: list[str]) -> Any:
        """An actor for a replica, which Ray starts again wherever there is room if it ends."""
        options = _placement(self._homes[shard], replica, nodes) | {
            "num_cpus": self._options.cpus,
            "max_restarts": -1,
            "max_task_retries": 0,
        }
        if self._options.n_bytes:
            options["memory"] = self._options.n_bytes
        if self._options.name is not None:
            options["name"] = f"{_label(self._options.name, self._build)}{shard}/{replica}"
            options |= {"namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        threads, mmap = self._options.threads, self._options.mmap
        return self._kind.options(**options).remote(self._url, shard, threads, mmap)

    def lacking(self) -> str | None:
        """What the nodes do not have enough of for all actors; None if they have."""
        n_actors = self._n_shards * self._options.replicas
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
        with self._lock:
            if self._is_closed:
                raise ValueError("expected an open cluster, got a closed one")
            if member.actor is actor:
                member.actor = self._started(member.shard, member.replica, self._nodes())

    def close(self) -> None:
        """End all actors, also those of the same name that other processes have started."""
        with self._lock:
            self._is_closed = True
        if not self._ray.is_initialized():
            return
        for member in (each for group in self.members for each in group):
            with suppress(ValueError):  # of a connection that was left
                self._ray.kill(member.actor)
        if self._options.name is not None:
            end_shared(self._ray, self._options.name, self._build)


def end_shared(ray: Any, name: str, build: str = "") -> None:
    """End the actors that processes share under a name, whichever of them started them.

    Args:
        ray: the package, connected to a cluster.
        name: the name.
        build: of the sharded index; by default the actors of all that were opened by the name.
    """
    from ray.util import list_named_actors

    label = _label(name, build) if build else f"{name}/"
    for each in list_named_actors(all_namespaces=True):
        if each["namespace"] == NAMESPACE and each["name"].startswith(label):
            with suppress(ValueError):  # it has ended meanwhile
                ray.kill(ray.get_actor(each["name"], namespace=NAMESPACE))


def _label(name: str, build: str) -> str:
    """How the names of actors begin that processes share."""
    return f"{name}/{build[:8]}/"


def _homes(nodes: list[str], shard: int, replicas: int) -> list[str]:
    """Different nodes for the replicas of a shard, as far as there are so many."""
    n = min(replicas, len(nodes))
    return [nodes[(shard * replicas + replica) % len(nodes)] for replica in range(n)]


def _placement(homes: list[str], replica: int, nodes: list[str]) -> dict[str, Any]:
    """Options of Ray: at home if there is room, else apart from the others, else anywhere.

    Nodes are chosen by leaving out others: for one that is named Ray does not ask for more nodes.

    Args:
        homes: nodes of the replicas of a shard; replicas beyond them may be anywhere.
        replica: which of them.
        nodes: all nodes.
    """
    spread: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
    if len(homes) < 2 or replica >= len(homes):
        return spread
    home = homes[replica]
    apart = [node for node in homes if node != home]
    choices = (_but([node for node in nodes if node != home]), _but(apart), _but([]))
    return spread | choices[0] | {"fallback_strategy": list(choices[1:])}


def _but(nodes: list[str]) -> dict[str, dict[str, str]]:
    """The option of Ray for all nodes but some."""
    return {"label_selector": {NODE: f"!in({','.join(nodes)})"} if nodes else {}}
