"""The router: which shards a query asks.

Every shard has several centroids, and the score of a shard starts from the distance of the nearest
of them. A learned router adds what a query log teaches: a network with one hidden layer predicts
which share of the k true neighbours each shard holds. A query asks all shards whose score is at
least a threshold, so that queries at a border ask more shards than others. If the predicted shares
are right, no other choice of shards with the same mean number finds more neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.partition import Partition

Floats = NDArray[np.float32]
Kind = Literal["centroids", "learned"]
LEARNED = ("mean", "scale", "hidden", "hidden_bias", "output", "output_bias", "sharpness")
"""Arrays of a learned router."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The learned part of a router: shares = softmax(network(features) − sharpness · offsets)."""

    mean: Floats
    """Mean of each feature [n_features]."""
    scale: Floats
    """What features are divided by [n_features]."""
    hidden: Floats
    """[n_features, n_hidden]"""
    hidden_bias: Floats
    """[n_hidden]"""
    output: Floats
    """[n_hidden, n_shards]"""
    output_bias: Floats
    """[n_shards]"""
    sharpness: Floats
    """Weight of the offsets of the centroids [1]."""

    def shares(self, features: Floats, offsets: Floats) -> Floats:
        """Predicted shares of the neighbours [n, n_shards], which add up to 1."""
        hidden = np.maximum(
            ((features - self.mean) / self.scale) @ self.hidden + self.hidden_bias, 0
        )
        logits = hidden @ self.output + self.output_bias - self.sharpness * offsets
        logits -= logits.max(axis=1, keepdims=True)
        powers = np.exp(logits)
        shares: Floats = powers / powers.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True, slots=True)
class Router:
    """Scores of shards for queries, by centroids and, if learned, by a query log."""

    partition: Partition
    weights: Weights | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        for name in LEARNED:
            array = getattr(self.weights, name)
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError(f"expected finite float32 {name} of the router, got {array.dtype}")
        n_features = self.partition.centroids.shape[1]
        n_hidden, n_shards = self.weights.output.shape
        expected = [(n_features,)] * 2 + [(n_features, n_hidden), (n_hidden,)]
        expected += [(n_hidden, self.partition.n_shards), (n_shards,), (1,)]
        got = [getattr(self.weights, name).shape for name in LEARNED]
        if got != expected or (self.weights.scale <= 0).any():
            raise ValueError(f"expected router arrays of shapes {expected}, got {got}")

    @property
    def kind(self) -> Kind:
        """What scores are by default."""
        return "centroids" if self.weights is None else "learned"

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.partition.n_shards

    def cost(self, kind: Kind) -> float:
        """Distance computations per query, in units of the original dimension."""
        n_cells, dim = self.partition.centroids.shape
        if kind == "centroids" or self.weights is None:
            return float(n_cells)
        return float(n_cells + (self.weights.hidden.size + self.weights.output.size) / dim)

    def scores(self, queries: Floats, kind: Kind | None = None) -> Floats:
        """Scores of all shards, larger is better [n, n_shards].

        Those of centroids are offsets with the opposite sign: 0 for the nearest shard. Those that
        were learned are the shares of the true neighbours that are expected in each shard.

        Args:
            queries: checked queries [n, dim].
            kind: centroids or learned; by default what the router has.
        """
        chosen = kind or self.kind
        features, offsets = self.features(queries)
        if chosen == "centroids":
            return -offsets
        if self.weights is None:
            raise ValueError("expected a learned router, got one with centroids only")
        return self.weights.shares(features, offsets)

    def features(self, queries: Floats) -> tuple[Floats, Floats]:
        """Features of queries [n, dim], and offsets of shards [n, n_shards].

        The features are the query itself; the offset of a shard is how much farther its nearest
        centroid is than the nearest of all.
        """
        rows, centroids = self.partition.prepared(queries), self.partition.centroids
        products = rows @ centroids.T
        if self.partition.metric == "ip":
            distances = -products
        else:
            squares = np.einsum("ij,ij->i", rows, rows)[:, None]
            squares = squares + np.einsum("ij,ij->i", centroids, centroids) - 2 * products
            distances = np.sqrt(np.maximum(squares, 0))
        nearest = np.stack(
            [distances[:, self.partition.shards == s].min(axis=1) for s in range(self.n_shards)],
            axis=1,
        )
        offsets = nearest - nearest.min(axis=1, keepdims=True)
        return rows, offsets.astype(np.float32)

    def choose(
        self, queries: Floats, threshold: float, kind: Kind | None = None
    ) -> NDArray[np.bool_]:
        """The shards that each query asks [n, n_shards]: the best, and all from a threshold up."""
        return chosen_by(self.scores(queries, kind), threshold)

    def nearest(self, queries: Floats, n_probe: int, kind: Kind | None = None) -> NDArray[np.bool_]:
        """The n best shards of each query [n, n_shards]."""
        if not n_probe >= 1:
            raise ValueError(f"expected at least 1 shard to ask, got {n_probe}")
        order = np.argsort(-self.scores(queries, kind), axis=1, kind="stable")[:, :n_probe]
        chosen = np.zeros((len(queries), self.n_shards), dtype=bool)
        np.put_along_axis(chosen, order, True, axis=1)
        return chosen

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        found: dict[str, NDArray[Any]] = {
            "centroids": self.partition.centroids,
            "cells": self.partition.shards,
        }
        if self.weights is not None:
            found |= {f"router_{name}": getattr(self.weights, name) for name in LEARNED}
        return found

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], partition: Partition) -> Router:
        """A router from its arrays; they are checked."""
        if "router_hidden" not in arrays:
            return cls(partition)
        return cls(partition, Weights(**{name: arrays[f"router_{name}"] for name in LEARNED}))


def chosen_by(scores: Floats, threshold: float) -> NDArray[np.bool_]:
    """Shards whose score is at least a threshold, and the best one of each query."""
    chosen = scores >= threshold
    chosen[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return chosen
