"""Clusters that do not fit on this machine, by a discrete-event simulation.

    python benchmarks/cluster_simulation.py --measured out/measured.json

Queries arrive at random (Poisson). Each asks some shards; a call goes to the replica with the
shorter queue of the two, waits for a free core there, and takes a service time drawn from a
lognormal distribution. The answer is complete when the slowest call is back. With hedging, a call
that is not back after a delay, the 95th percentile of calls so far, is sent to the other replica
too, if that is less busy, for at most 5% of all calls; the first answer counts, the other call is
worked off all the same.

Assumptions: the number of shards that a query asks grows with a power of all shards, that of the
measured numbers at 4 and 8 shards; the service time of a shard grows with the logarithm of its
vectors, from the time measured at one size; a call has a fixed cost on the way; nodes do not fail;
the router's time is part of the fixed cost; one in `hiccup_every` service times takes `hiccup`
times as long, as by a pause of a busy machine. Bytes are those of int8 routing vectors, float16
originals and 16 edges.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from l2route.cluster.latencies import Hedges

NODE_BYTES = 64e9
"""Memory of a node for shards."""
NODE_CORES = 16
DIM = 64


@dataclass(frozen=True, slots=True)
class Model:
    """What is simulated."""

    n_shards: int
    n_asked: float
    """Mean number of shards that a query asks."""
    service: float
    """Mean seconds of a query in a shard."""
    spread: float = 0.35
    """Standard deviation of the logarithm of service times."""
    overhead: float = 0.001
    """Seconds of a call beyond its service: on the way, and in Ray."""
    rate: float = 100.0
    """Queries a second."""
    replicas: int = 2
    cores: int = 1
    """Cores of a replica."""
    hedges: bool = True
    hiccup_every: int = 500
    hiccup: float = 20.0


@dataclass(slots=True)
class Simulation:
    """One run: servers with queues of their own, and events in the order of their times."""

    model: Model
    seed: int = 0
    now: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    n_events: int = 0
    calls: list[float] = field(default_factory=list)
    queries: list[float] = field(default_factory=list)
    busy: float = 0.0
    delay: float = 1e9
    """Seconds after which a call is late, measured anew every 100 calls."""
    n_known: int = 0
    hedges: Hedges = field(default_factory=Hedges)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan an event."""
        self.n_events += 1
        heapq.heappush(self.events, (when, self.n_events, what))

    def run(self, n_queries: int) -> None:
        """Simulate a number of queries, all of which are answered."""
        model, rng = self.model, np.random.default_rng(self.seed)
        free = np.zeros((model.n_shards, model.replicas, model.cores))  # when each core is free
        arrivals = np.cumsum(rng.exponential(1 / model.rate, n_queries))
        for when in arrivals:
            self.at(float(when), lambda: self._arrive(rng, free))
        while self.events:
            self.now, _, what = heapq.heappop(self.events)
            what()

    def _arrive(self, rng: np.random.Generator, free: np.ndarray) -> None:
        """A query asks its shards."""
        model, began = self.model, self.now
        floor = math.floor(model.n_asked)
        n = floor + int(rng.random() < model.n_asked - floor)
        shards = rng.choice(model.n_shards, min(max(n, 1), model.n_shards), replace=False)
        left = set(shards.tolist())

        def done(shard: int) -> None:
            if shard in left:
                left.remove(shard)
                self.calls.append(self.now - began)
                if not left:
                    self.queries.append(self.now - began)

        def send(shard: int, replica: int) -> None:
            core = int(free[shard, replica].argmin())
            start = max(self.now + model.overhead / 2, float(free[shard, replica, core]))
            seconds = self._service(rng)
            free[shard, replica, core] = start + seconds
            self.busy += seconds
            self.at(start + seconds + model.overhead / 2, lambda: done(shard))

        for shard in left.copy():
            best = int(free[shard].min(axis=1).argmin())
            send(shard, best)
            if model.hedges and model.replicas > 1 and len(self.calls) > 200:
                if len(self.calls) > self.n_known + 100:
                    self.n_known = len(self.calls)
                    self.delay = 1.5 * float(np.quantile(self.calls[-500:], 0.95))
                other = (best + 1) % model.replicas

                def hedge(shard: int = shard, late: int = best, other: int = other) -> None:
                    is_less_busy = free[shard, other].min() < free[shard, late].min()
                    if shard in left and is_less_busy and self.hedges.take():
                        send(shard, other)

                self.hedges.note_calls(1)
                self.at(self.now + self.delay, hedge)

    def _service(self, rng: np.random.Generator) -> float:
        model = self.model
        mean = model.service * math.exp(-(model.spread**2) / 2)
        seconds = mean * math.exp(model.spread * rng.standard_normal())
        return seconds * (model.hiccup if rng.random() < 1 / model.hiccup_every else 1.0)


def simulate(model: Model, n_queries: int) -> dict[str, float]:
    """Median, tail and load of a model, in milliseconds and shares."""
    simulation = Simulation(model)
    simulation.run(n_queries)
    taken = 1e3 * np.array(simulation.queries[n_queries // 10 :])  # without the start
    cores = model.n_shards * model.replicas * model.cores
    return {
        "p50_ms": round(float(np.quantile(taken, 0.5)), 2),
        "p99_ms": round(float(np.quantile(taken, 0.99)), 2),
        "p99.9_ms": round(float(np.quantile(taken, 0.999)), 2),
        "load": round(simulation.busy / (cores * simulation.now), 3),
    }


def bytes_of(n_vectors: float) -> float:
    """Bytes of an index: int8 and float16 of each dimension, 16 edges, an id."""
    return n_vectors * (DIM * 3 + 16 * 4 + 8)


def scaled(service: float, measured_at: float, n_vectors: float) -> float:
    """Seconds of a query in a shard of another size: walks grow with the logarithm."""
    return service * math.log(n_vectors) / math.log(measured_at)


def check(measured: dict[str, Any], n_queries: int) -> None:
    """Simulate what was measured, one query after another, and print both."""
    for each in measured["checks"]:
        model = Model(
            n_shards=int(each["shards"]),
            n_asked=each["n_asked"],
            service=each["service_ms"] / 1e3,
            overhead=each["overhead_ms"] / 1e3,
            rate=1e-3,
            replicas=1,
            hedges=False,
        )
        found = simulate(model, n_queries)
        print(json.dumps({"check": each, "simulated": found}))


def project(measured: dict[str, Any], n_queries: int) -> None:
    """Print what 100M and 1B vectors would take, with and without hedging and the router."""
    at = measured["service"][0]
    for n_vectors in (1e8, 1e9):
        n_shards = math.ceil(n_vectors / 1e7)
        replicas_bytes = 2 * bytes_of(n_vectors)
        n_nodes = max(math.ceil(replicas_bytes / NODE_BYTES), math.ceil(2 * n_shards / NODE_CORES))
        service = scaled(at["service_ms"] / 1e3, at["vectors"], n_vectors / n_shards)
        for router, (few, many) in measured["routers"].items():
            asked = min(float(n_shards), few * (n_shards / 4) ** math.log2(many / few))
            most = 2 * n_shards / (asked * service)  # queries a second of all cores
            base = Model(n_shards, asked, service, overhead=measured["overhead_ms"] / 1e3)
            for load in (0.3, 0.6):
                for hedges in (False, True):
                    model = replace(base, rate=load * most, hedges=hedges)
                    row = {
                        "vectors": n_vectors,
                        "nodes": n_nodes,
                        "GB": round(replicas_bytes / 1e9),
                        "shards": n_shards,
                        "router": router,
                        "asked": round(asked, 2),
                        "queries_s": round(model.rate),
                        "hedging": hedges,
                    }
                    print(json.dumps(row | simulate(model, n_queries)), flush=True)


def main() -> None:
    """Check the model against what was measured, then print projections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=4000)
    given = parser.parse_args()
    measured = json.loads(given.measured.read_text())
    check(measured, given.queries)
    project(measured, given.queries)


if __name__ == "__main__":
    main()
