"""Learning to route among shards: which of them hold the true neighbours of logged queries.

The loss is the cross entropy between the shares of the true neighbours in each shard and the
predicted ones. The network starts as the rule by centroids, to which it adds nothing yet. All of it
is numpy: a log of 50,000 queries takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.router import LEARNED, Router, Weights

Floats = NDArray[np.float32]
FEW_QUERIES = 500
"""Fewer logged queries teach nothing."""


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """How a router is learned."""

    n_hidden: int = 32
    """Units of the hidden layer."""
    n_epochs: int = 40
    """Passes over the queries."""
    batch: int = 256
    """Queries of a step."""
    rate: float = 2e-3
    """First step size; it falls to 0 like a cosine."""
    decay: float = 1e-4
    """Decay of the weights."""
    held_out: float = 0.1
    """Share of the queries on which the best pass is chosen."""
    seed: int = 0
    """Seed of the first weights and of the order of queries."""


def shares_of(neighbors: NDArray[np.int32], n_shards: int) -> Floats:
    """Shares of the true neighbours of each query in each shard [n, n_shards].

    Args:
        neighbors: the shards that hold the true neighbours [n, k]; −1 for none.
        n_shards: number of shards.
    """
    shares = np.zeros((len(neighbors), n_shards), dtype=np.float32)
    for column in neighbors.T:
        is_one = column >= 0
        shares[np.flatnonzero(is_one), column[is_one]] += 1
    totals = shares.sum(axis=1, keepdims=True)
    normalized: Floats = shares / np.maximum(totals, 1)
    return normalized


def learn_router(
    router: Router, queries: Floats, shares: Floats, options: RouterOptions | None = None
) -> Router:
    """Learn from a query log; the router as it was if the log is too short.

    Args:
        router: by centroids.
        queries: logged queries [n, dim].
        shares: shares of their true neighbours in each shard [n, n_shards].
        options: how to learn.
    """
    chosen = options or RouterOptions()
    if len(queries) < FEW_QUERIES:
        return router
    rng = np.random.default_rng(chosen.seed)
    features, offsets = router.features(queries)
    order = rng.permutation(len(queries))
    n_held = max(1, round(chosen.held_out * len(queries)))
    held, rest = order[:n_held], order[n_held:]
    start = _start(features[rest], offsets[rest], router.n_shards, chosen, rng)
    best, best_loss, adam = start, np.inf, _Adam(chosen)
    weights = start
    for epoch in range(chosen.n_epochs):
        rate = chosen.rate * 0.5 * (1 + np.cos(np.pi * epoch / chosen.n_epochs))
        shuffled = rng.permutation(rest)
        for first in range(0, len(shuffled), chosen.batch):
            rows = shuffled[first : first + chosen.batch]
            gradients = _gradients(weights, features[rows], offsets[rows], shares[rows])
            weights = adam.step(weights, gradients, rate)
        loss = _loss(weights, features[held], offsets[held], shares[held])
        if loss < best_loss:
            best, best_loss = weights, loss
    return replace(router, weights=best)


def _start(
    features: Floats,
    offsets: Floats,
    n_shards: int,
    options: RouterOptions,
    rng: np.random.Generator,
) -> Weights:
    """Weights whose predictions are those of the centroids."""
    n_features, n_hidden = features.shape[1], options.n_hidden
    first = rng.normal(size=(n_features, n_hidden)) * np.sqrt(2 / n_features)
    typical = max(float(offsets.mean()), 1e-9)
    values = {
        "mean": features.mean(axis=0),
        "scale": features.std(axis=0) + 1e-6 * (np.abs(features).max() + 1e-30),
        "hidden": first,
        "hidden_bias": np.zeros(n_hidden),
        "output": np.zeros((n_hidden, n_shards)),
        "output_bias": np.zeros(n_shards),
        "sharpness": np.array([1 / typical]),
    }
    return Weights(**{name: np.asarray(values[name], dtype=np.float32) for name in LEARNED})


def _loss(weights: Weights, features: Floats, offsets: Floats, shares: Floats) -> float:
    """Mean cross entropy."""
    predicted = weights.shares(features, offsets)
    return float(-(shares * np.log(predicted + 1e-12)).sum(axis=1).mean())


def _gradients(
    weights: Weights, features: Floats, offsets: Floats, shares: Floats
) -> dict[str, Floats]:
    """Gradients of the mean cross entropy of a batch, by name."""
    scaled = (features - weights.mean) / weights.scale  # [n, n_features]
    hidden = np.maximum(scaled @ weights.hidden + weights.hidden_bias, 0)  # [n, n_hidden]
    error = (weights.shares(features, offsets) - shares) / len(features)  # [n, n_shards]
    back = (error @ weights.output.T) * (hidden > 0)  # [n, n_hidden]
    return {
        "hidden": scaled.T @ back,
        "hidden_bias": back.sum(axis=0),
        "output": hidden.T @ error,
        "output_bias": error.sum(axis=0),
        "sharpness": np.array([-(error * offsets).sum()], dtype=np.float32),
    }


class _Adam:
    """Steps of Adam with decay of matrices; a step of the sharpness is relative to its size."""

    def __init__(self, options: RouterOptions) -> None:
        self._decay, self._n_steps = options.decay, 0
        self._means: dict[str, Floats] = {}
        self._squares: dict[str, Floats] = {}

    def step(self, weights: Weights, gradients: dict[str, Floats], rate: float) -> Weights:
        """The weights after one step."""
        self._n_steps += 1
        changed = {}
        for name, gradient in gradients.items():
            before = getattr(weights, name)
            mean = self._moved(self._means, name, gradient, 0.9)
            square = self._moved(self._squares, name, gradient**2, 0.999)
            size = rate * (float(abs(before[0])) if name == "sharpness" else 1.0)
            decay = self._decay * before if before.ndim == 2 else 0.0
            changed[name] = before - size * (mean / (np.sqrt(square) + 1e-8) + decay)
        kept = {each.name: getattr(weights, each.name) for each in fields(weights)}
        return Weights(**(kept | {k: v.astype(np.float32) for k, v in changed.items()}))

    def _moved(self, moments: dict[str, Floats], name: str, value: Floats, keep: float) -> Floats:
        """A moment after one more value, without the bias of its start."""
        before = moments.get(name, np.zeros_like(value))
        moments[name] = keep * before + (1 - keep) * value
        return moments[name] / (1 - keep**self._n_steps)
