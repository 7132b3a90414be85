"""Clusters that do not fit on this machine, by a discrete-event simulation.

    python benchmarks/cluster_simulation.py --measured benchmarks/cluster_measured.json

The file has what `cluster_load.py`, `cluster_overhead.py` and `cluster_router.py` measured. First
the model has to predict the latencies that were measured under load on one machine, where driver,
replicas and Ray share the cores; then it is asked about clusters that nobody has here.

Queries arrive at random (Poisson). Each asks some shards; a call goes to the replica with the
shorter queue of the two, waits for a free core there, and takes a service time drawn from a
lognormal distribution. The answer is complete when the slowest call is back. With hedging, a call
that is not back after a delay, the 95th percentile of calls so far, is sent to the other replica
too, if that is less busy, for at most 5% of all calls; the first answer counts, the other call is
worked off all the same.

Assumptions: the number of shards that a query asks grows with a power of all shards, that of the
measured numbers at 4 and 8 shards, and the queries of a batch choose independently; a call takes
the CPU time that Ray takes in a replica, and for each query a search, which grows with the
logarithm of the vectors of a shard; a call has a fixed time on the way; nodes do not fail; there
are as many drivers as needed (`driver_cores`), and none is a bottleneck; one in `hiccup_every`
service times takes `hiccup` times as long, as by a pause of a busy machine. Bytes are those of int8
routing vectors, float16 originals and 16 edges.
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
Servers = list[list[np.ndarray]]
"""When each core is free, by shard and replica; the same cores for all that share a machine."""


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
    shared_cores: int = 0
    """Cores of the one machine that all replicas and the driver are on; 0 if each has its own."""
    driver: float = 0.0
    """Seconds of a core that the driver, one thread, needs for a query before it asks shards."""
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
    driver_free: float = 0.0
    """When the driver has worked off what it has."""
    hedges: Hedges = field(default_factory=Hedges)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan an event."""
        self.n_events += 1
        heapq.heappush(self.events, (when, self.n_events, what))

    def run(self, n_queries: int) -> None:
        """Simulate a number of queries, all of which are answered."""
        model, rng = self.model, np.random.default_rng(self.seed)
        one_machine = np.zeros(model.shared_cores)
        free: Servers = [
            [
                one_machine if model.shared_cores else np.zeros(model.cores)
                for _ in range(model.replicas)
            ]
            for _ in range(model.n_shards)
        ]
        arrivals = np.cumsum(rng.exponential(1 / model.rate, n_queries))
        for when in arrivals:
            self.at(float(when), lambda: self._arrive(rng, free))
        while self.events:
            self.now, _, what = heapq.heappop(self.events)
            what()

    def _arrive(self, rng: np.random.Generator, free: Servers) -> None:
        """A query comes to the driver, which asks shards when it has worked on it."""
        began = self.now
        if not self.model.driver:
            self._ask(rng, free, began)
            return
        cores = free[0][0]
        core = int(cores.argmin())
        self.driver_free = max(began, self.driver_free, float(cores[core])) + self.model.driver
        cores[core] = self.driver_free
        self.busy += self.model.driver
        self.at(self.driver_free, lambda: self._ask(rng, free, began))

    def _ask(self, rng: np.random.Generator, free: Servers, began: float) -> None:
        """A query that came at a time asks its shards."""
        model = self.model
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
            cores = free[shard][replica]
            core = int(cores.argmin())
            start = max(self.now + model.overhead / 2, float(cores[core]))
            seconds = self._service(rng)
            cores[core] = start + seconds
            self.busy += seconds
            self.at(start + seconds + model.overhead / 2, lambda: done(shard))

        for shard in left.copy():
            best = int(np.argmin([each.min() for each in free[shard]]))
            send(shard, best)
            if model.hedges and model.replicas > 1 and len(self.calls) > 200:
                if len(self.calls) > self.n_known + 100:
                    self.n_known = len(self.calls)
                    self.delay = 1.5 * float(np.quantile(self.calls[-500:], 0.95))
                other = (best + 1) % model.replicas

                def hedge(shard: int = shard, late: int = best, other: int = other) -> None:
                    is_less_busy = free[shard][other].min() < free[shard][late].min()
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
    cores = model.shared_cores or model.n_shards * model.replicas * model.cores
    return {
        "p50_ms": round(float(np.quantile(taken, 0.5)), 2),
        "p90_ms": round(float(np.quantile(taken, 0.9)), 2),
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


def model_of(measured: dict[str, Any]) -> Model:
    """One machine: what takes time with one query at a time and is not work is on the way.

    The driver works on one query at a time, as fast as it did with four threads.
    """
    work = (measured["replica_ms"] + measured["others_ms"]) / 1e3
    model = Model(
        n_shards=int(measured["shards"]),
        n_asked=measured["n_asked"],
        service=work,
        overhead=0.0,
        rate=1.0,
        replicas=1,
        hedges=False,
        shared_cores=int(measured["cores"]),
        driver=max(measured["driver_ms"] / 1e3, 1 / measured["capacity"]),
        hiccup_every=10**9,
    )
    alone = simulate(model, 2000)["p50_ms"]
    return replace(model, overhead=max(0.0, measured["alone"]["p50_ms"] - alone) / 1e3)


def check(measured: dict[str, Any], n_queries: int) -> None:
    """Predict the latencies under each load that was measured, and print both."""
    model = model_of(measured)
    for load in measured["loads"]:
        found = simulate(replace(model, rate=load["rate"]), n_queries)
        print(json.dumps({"shards": measured["shards"], "measured": load, "simulated": found}))


def calls_of(n_shards: int, asked: float, batch: int) -> float:
    """Shards that a batch asks, if each of its queries asks `asked` of them at random."""
    return n_shards * (1 - (1 - asked / n_shards) ** batch)


def project(measured: dict[str, Any], n_batches: int) -> None:
    """Print what 100M and 1B vectors would take, with and without hedging and the router."""
    at = measured["search"]
    for n_vectors, batch in ((1e8, 1), (1e8, 32), (1e9, 1), (1e9, 32)):
        n_shards = math.ceil(n_vectors / 1e7)
        replicas_bytes = 2 * bytes_of(n_vectors)
        n_nodes = max(math.ceil(replicas_bytes / NODE_BYTES), math.ceil(2 * n_shards / NODE_CORES))
        search_ms = scaled(at["ms"], at["vectors"], n_vectors / n_shards)
        for router, (few, many) in measured["routers"].items():
            asked = min(float(n_shards), few * (n_shards / 4) ** math.log2(many / few))
            calls = calls_of(n_shards, asked, batch)
            service = (measured["call_ms"] + search_ms * batch * asked / calls) / 1e3
            most = 2 * n_shards / (calls * service)  # batches a second of all cores
            base = Model(n_shards, calls, service, overhead=measured["way_ms"] / 1e3)
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
                        "batch": batch,
                        "queries_s": round(model.rate * batch),
                        "driver_cores": round(model.rate * measured["driver_ms"] / 1e3, 1),
                        "hedging": hedges,
                    }
                    print(json.dumps(row | simulate(model, n_batches)), flush=True)


def main() -> None:
    """Check the model against what was measured, then print projections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=4000)
    given = parser.parse_args()
    measured = json.loads(given.measured.read_text())
    for each in measured["checks"]:
        check(each, given.queries)
    project(measured, given.queries)


if __name__ == "__main__":
    main()
