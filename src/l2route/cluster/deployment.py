"""A deployment of Ray Serve with the HTTP interface of the single-machine server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.cluster import Cluster
from l2route.cluster.errors import PartialError, QueueFullError
from l2route.cluster.merge import ClusterResult
from l2route.extras import install
from l2route.search.limits import DEFAULT_BUDGET, Limits
from l2route.search.setting import Setting
from l2route.search.validation import DEPTH
from l2route.serve import batcher
from l2route.serve.options import API_KEY, ServeOptions
from l2route.serve.served import Served

Ids = NDArray[np.int64]
MAX_ONGOING = 200
"""Requests that a replica of the deployment takes at a time."""
ANYWHERE = "0.0.0.0"
"""Address of a server that others may reach."""


class ClusterIndex:
    """A cluster as the server knows an index."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.dim, self.space_names = cluster.dim, ("shards",)

    def __len__(self) -> int:
        return sum(n_vectors for n_vectors, _ in self._cluster.sizes)

    @property
    def depth(self) -> int:
        """True neighbours that are known of a validation query: the largest k of a recall."""
        known = self._cluster.validation
        return DEPTH if known is None else int(known[1].shape[1])

    @property
    def n_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(n_bytes for _, n_bytes in self._cluster.sizes)

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        where: Ids | None,
        recall: float | None,
        guarantee: str | None,
        space: str | None,
        n_threads: int,
        cap: int | None = None,
        **limits: Any,
    ) -> ClusterResult:
        """Search for the server; the cap holds within every shard, but for a recall."""
        if guarantee not in (None, "mean") or space not in (None, *self.space_names):
            expected = "neither a guarantee but mean nor a space for a sharded index"
            raise ValueError(f"expected {expected}, got {guarantee} and {space}")
        if recall is None and cap is not None:
            largest = max(n for n, _ in self._cluster.sizes)
            limits = capped(Limits(**limits), cap, largest, k)._asdict()
        with _refusals():
            return self._cluster.search(queries, k, where=where, recall=recall, **limits)

    def setting(self, recall: float, k: int) -> object:
        """Measure what reaches a recall, for a k that it has true neighbours for."""
        with _refusals():
            return self._cluster.point_for(recall, min(k, self._cluster.manifest.k))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings that reach a recall."""
        return tuple(
            Setting("shards", each.k, each.target, 0, each.recall, slack=0.0)
            for each in self._cluster.manifest.points
        )

    def searcher(self) -> Any:
        """What knows the metric."""
        return _Searcher(_Base(self._cluster.manifest.metric))


def capped(limits: Limits, cap: int, n_vectors: int, k: int) -> Limits:
    """Limits with a budget of at most `cap`, for shards whose spaces are not known here.

    Args:
        limits: as asked for.
        cap: distance computations per query.
        n_vectors: vectors of the largest shard.
        k: answers per query.
    """
    budget, ef, slack, rerank = limits
    if limits.is_budgeted:
        return limits if (budget or DEFAULT_BUDGET) <= cap else limits._replace(budget=cap)
    if n_vectors <= cap:
        return limits
    usual = max(k, ef or 0) if slack is None else 2 * k  # without a budget
    kept = min(usual, max(k, cap // 2)) if rerank is None else rerank
    return limits._replace(budget=cap, rerank=kept)


@contextmanager
def _refusals() -> Iterator[None]:
    """Errors of a cluster as those that the server has answers to: try again, or later."""
    try:
        yield
    except QueueFullError as error:
        raise batcher.QueueFullError(str(error)) from None
    except PartialError as error:
        raise batcher.ClosedError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Base:
    metric: str


@dataclass(frozen=True, slots=True)
class _Searcher:
    base: _Base


class ServedCluster:
    """A cluster as the server knows what it serves; changes are saved before they return."""

    has_changes = has_journal = is_newer = False
    n_reloads = 0
    labels = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.path, self.index = cluster.folder.url, ClusterIndex(cluster)

    def filter(self, ids: Ids) -> Ids:
        """A filter for `where` in searches."""
        return ids

    def add(self, vectors: object, ids: object, labels: list[str] | None) -> Ids:
        """Add vectors, and return their ids."""
        if labels is not None:
            raise ValueError("expected no labels in a sharded index, got some")
        with _refusals():
            return self._cluster.add(vectors, ids)

    def update(self, ids: Ids, vectors: object) -> Ids:
        """Give ids new vectors."""
        with _refusals():
            self._cluster.update(ids, vectors)
        return ids

    def delete(self, ids: Ids) -> Ids:
        """Delete vectors."""
        with _refusals():
            self._cluster.delete(ids)
        return ids

    def commit(self, *, follows: bool = True) -> None:
        """Do nothing: all is saved."""

    def save(self, *, follows: bool = True) -> None:
        """Do nothing: all is saved."""

    def reload(self) -> bool:
        """Do nothing: replicas follow the saves of their shards."""
        return False


def deployed(options: ServeOptions | None) -> ServeOptions:
    """Options of a deployment: with the key of the environment, unless another one is given.

    Without a key it refuses changes: where the proxy of Ray Serve listens is not known here.

    Args:
        options: as given; None for the defaults.
    """
    given = options or ServeOptions()
    key = os.environ.get(API_KEY) if given.api_key is None else given.api_key
    return replace(given, host=ANYWHERE, reload=False, api_key=key)


def deployment_of(
    path: str,
    options: ServeOptions | None = None,
    *,
    name: str = "l2route",
    num_replicas: int | str = "auto",
    cpus: float = 1.0,
    **cluster: Any,
) -> Any:
    """An application for `ray.serve.run`, with the routes of `l2route serve` but its page.

    Requests that arrive together are searched as one batch. All replicas of the deployment ask the
    same actors of the shards.

    Args:
        path: directory that all nodes see, or URL of fsspec, of a sharded index.
        options: limits, time-outs and the API key; without one, that in `L2ROUTE_API_KEY` here or
            on the node of a replica. Without any, changes are refused.
        name: under which the actors of the shards are shared.
        num_replicas: replicas of the deployment, or "auto" to follow the load.
        cpus: cores that Ray reserves for a replica of the deployment, and for an actor of a shard.
        **cluster: arguments of `Cluster`.
    """
    serve = import_serve()
    from l2route.serve.app import app_of  # needs the extra too
    from l2route.serve.engine import Engine

    chosen = deployed(options)

    def build() -> Any:
        served = ServedCluster(Cluster(path, name=name, cpus=cpus, **cluster))
        # it has all that the server asks of an index that is served
        return app_of(Engine(cast(Served, served), deployed(chosen)), has_page=False)

    deployment = serve.deployment(
        name=name,
        num_replicas=num_replicas,
        max_ongoing_requests=MAX_ONGOING,
        ray_actor_options={"num_cpus": cpus},
    )
    return deployment(serve.ingress(build)()).bind()


def import_serve() -> Any:
    """The package ray.serve; an error that says how to install it if there is none."""
    try:
        import fastapi
        from ray import serve
    except ImportError as error:
        raise ImportError(f"serving a cluster needs: {install('ray')}") from error
    assert fastapi
    return serve
