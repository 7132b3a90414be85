"""Estimators for scikit-learn: neighbours of samples, and the graph of neighbours as features.

`L2RouteNeighbors` has the methods of `NearestNeighbors`, `L2RouteTransformer` those of
`KNeighborsTransformer`; both find neighbours by an index of l2route.
"""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.extras import install
from l2route.index import RoutingIndex

try:
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
    from sklearn.base import (  # type: ignore[import-untyped]
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.utils.validation import (  # type: ignore[import-untyped]
        check_is_fitted,
        validate_data,
    )
except ImportError as error:
    raise ImportError(f"the estimators for scikit-learn need: {install('sklearn')}") from error

Mode = Literal["connectivity", "distance"]
Distances = NDArray[np.float64]
Ids = NDArray[np.int64]

METRICS: dict[str, Metric] = {
    "euclidean": "l2",
    "l2": "l2",
    "sqeuclidean": "l2",
    "cosine": "cosine",
    "inner_product": "ip",
}
"""l2route's metric for each metric of the estimators."""
EXACT_SIZE = 1000
"""Samples up to which every search looks at all of them."""
EF_PER_ANSWER, MIN_EF = 3, 200
"""The default beam width: so many for each neighbour asked for, and at least so many."""

ROUNDING = 1e-6
"""Share by which a radius is enlarged."""


class L2RouteNeighbors(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Nearest neighbours of samples, as `sklearn.neighbors.NearestNeighbors` has them.

    Up to 1,000 samples all neighbours are exact. Of more samples a search may miss a few: a larger
    `ef` misses fewer and takes longer. All neighbours asked for are returned in any case.
    Distances are computed in float32; for the Euclidean ones samples are centred first.

    After `fit`: `index_`, the index; `n_samples_fit_`; `n_features_in_`; `effective_metric_`.

    Args:
        n_neighbors: neighbours of a sample.
        radius: largest distance of a neighbour in `radius_neighbors`.
        metric: euclidean (or l2), sqeuclidean, cosine (1 − cos) or inner_product, whose distances
            are negative inner products.
        ef: beam width of searches; by default three times the neighbours asked for, and at least
            200.
        n_jobs: threads; None and −1 for all cores, −2 for all but one.
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        metric: str = "euclidean",
        ef: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.metric = metric
        self.ef = ef
        self.n_jobs = n_jobs

    def fit(self, X: object, y: object = None) -> L2RouteNeighbors:  # noqa: N803
        """Index the samples X [n_samples, n_features]; y is ignored."""
        _check_metric(self.metric)
        _count("n_neighbors", self.n_neighbors)
        if self.ef is not None:
            _count("ef", self.ef)
        threads = _threads(self.n_jobs)
        samples = validate_data(self, X, dtype=(np.float64, np.float32))
        self.effective_metric_ = self.metric
        self.n_samples_fit_ = len(samples)
        self.center_ = _center(samples) if METRICS[self.metric] == "l2" else None
        self.index_ = RoutingIndex.build(
            self._vectors(samples), METRICS[self.metric], n_threads=threads
        )
        return self

    def kneighbors(
        self,
        X: object = None,  # noqa: N803
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Ids | tuple[Distances, Ids]:
        """Find the nearest neighbours of each sample.

        Args:
            X: samples [n, n_features]; None for those of `fit`, of which none is a neighbour of
                itself.
            n_neighbors: neighbours of a sample; by default as given to the class.
            return_distance: whether to return distances too.

        Returns:
            Distances [n, n_neighbors], nearest first, and the neighbours' row numbers in `fit`.
        """
        distances, ids = self._kneighbors(X, n_neighbors)
        return (distances, ids) if return_distance else ids

    def kneighbors_graph(
        self,
        X: object = None,  # noqa: N803
        n_neighbors: int | None = None,
        mode: Mode = "connectivity",
    ) -> csr_matrix:
        """The graph of neighbours as a sparse matrix [n, n_samples_fit_], rows sorted by distance.

        Args:
            X: samples, as in `kneighbors`.
            n_neighbors: neighbours of a sample; by default as given to the class.
            mode: "connectivity" for ones, "distance" for distances, not of inner products.
        """
        _check_mode(mode, self.metric)
        distances, ids = self._kneighbors(X, n_neighbors)
        values = distances if mode == "distance" else np.ones(ids.shape)
        offsets = np.arange(0, ids.size + 1, ids.shape[1])
        return csr_matrix(
            (values.ravel(), ids.ravel(), offsets), shape=(len(ids), self.n_samples_fit_)
        )

    def radius_neighbors(
        self,
        X: object = None,  # noqa: N803
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> NDArray[np.object_] | tuple[NDArray[np.object_], NDArray[np.object_]]:
        """Find all neighbours within a radius of each sample.

        Args:
            X: samples, as in `kneighbors`.
            radius: largest distance of a neighbour; by default as given to the class.
            return_distance: whether to return distances too.
            sort_results: has no effect: the nearest always come first.

        Returns:
            Arrays of arrays, one per sample: distances, and the neighbours' row numbers in `fit`.
        """
        offsets, distances, ids = self._within(X, radius)
        parts = [_ragged(np.split(each, offsets[1:-1])) for each in (distances, ids)]
        return (parts[0], parts[1]) if return_distance else parts[1]

    def radius_neighbors_graph(
        self,
        X: object = None,  # noqa: N803
        radius: float | None = None,
        mode: Mode = "connectivity",
        sort_results: bool = False,
    ) -> csr_matrix:
        """The graph of neighbours within a radius as a sparse matrix [n, n_samples_fit_].

        Args:
            X: samples, as in `kneighbors`.
            radius: largest distance of a neighbour; by default as given to the class.
            mode: "connectivity" for ones, "distance" for distances, not of inner products.
            sort_results: has no effect: rows are always sorted by distance.
        """
        _check_mode(mode, self.metric)
        offsets, distances, ids = self._within(X, radius)
        values = distances if mode == "distance" else np.ones(len(ids))
        shape = (len(offsets) - 1, self.n_samples_fit_)
        return csr_matrix((values, ids, offsets), shape=shape)

    def _kneighbors(self, given: object, n_neighbors: int | None) -> tuple[Distances, Ids]:
        check_is_fitted(self)
        k = _count("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        queries = self._queries(given)
        n, n_found = self.n_samples_fit_, k + (given is None)
        if n_found > n:
            most = n - (given is None)
            raise ValueError(
                f"expected n_neighbors of at most {most}, got {k}: "
                f"n_samples_fit = {n}, n_samples = {len(queries)}"
            )
        found = self.index_.search(
            queries, n_found, ef=self._ef(n_found), n_threads=_threads(self.n_jobs)
        )
        distances, ids = self._distances(found.distances), found.ids
        if given is not None:
            return distances, ids
        keep = _without_self(ids)
        return distances[keep].reshape(-1, k), ids[keep].reshape(-1, k)

    def _within(self, given: object, radius: float | None) -> tuple[Ids, Distances, Ids]:
        """Offsets of the neighbours of each sample, their distances, and the neighbours."""
        check_is_fitted(self)
        queries = self._queries(given)
        found = self.index_.search_radius(
            queries,
            _reach(float(self.radius if radius is None else radius), self.metric),
            ef=self._ef(1),
            n_threads=_threads(self.n_jobs),
        )
        distances = self._distances(found.distances)
        if given is not None:
            return found.offsets, distances, found.ids
        rows = np.repeat(np.arange(len(queries)), np.diff(found.offsets))
        keep = found.ids != rows
        counts = np.bincount(rows[keep], minlength=len(queries))
        return np.concatenate([[0], np.cumsum(counts)]), distances[keep], found.ids[keep]

    def _ef(self, k: int) -> int:
        """The beam width for k answers; of few samples, all."""
        if self.n_samples_fit_ <= EXACT_SIZE:
            return 2 * EXACT_SIZE  # a search by radius ends after half as many in vain
        return max(k, self.ef or max(MIN_EF, EF_PER_ANSWER * k))

    def _queries(self, given: object) -> NDArray[np.float32]:
        if given is None:
            return self.index_.base.vectors()
        samples = validate_data(self, given, dtype=(np.float64, np.float32), reset=False)
        return self._vectors(samples)

    def _vectors(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """Samples as the index has them: centred before rounding, for Euclidean distances."""
        centred = samples if self.center_ is None else samples - self.center_
        with np.errstate(over="ignore"):  # the index refuses what becomes infinite
            vectors: NDArray[np.float32] = np.ascontiguousarray(centred, dtype=np.float32)
        return vectors

    def _distances(self, found: NDArray[np.float32]) -> Distances:
        """The index's distances as those of the metric."""
        distances = found.astype(np.float64)
        if self.metric == "inner_product":
            return distances
        np.maximum(distances, 0.0, out=distances)  # rounding: 1 - cos may be below 0
        return np.sqrt(distances) if self.metric in ("euclidean", "l2") else distances


class L2RouteTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn has no types
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Transform samples into a graph of neighbours, as `KNeighborsTransformer` does.

    The graph goes to estimators with `metric="precomputed"`, such as `TSNE` or
    `KNeighborsClassifier`. For recall and exactness see `L2RouteNeighbors`.

    After `fit`: `neighbors_`, the fitted `L2RouteNeighbors`; `n_samples_fit_`; `n_features_in_`.

    Args:
        mode: "distance" for distances, with one neighbour more than asked for, because a sample of
            `fit` is its own neighbour; "connectivity" for ones.
        n_neighbors: neighbours of a sample.
        metric: euclidean (or l2), sqeuclidean or cosine; with connectivity also inner_product.
        ef: beam width of searches; by default three times the neighbours, and at least 200.
        n_jobs: threads; None and −1 for all cores, −2 for all but one.
    """

    def __init__(
        self,
        *,
        mode: Mode = "distance",
        n_neighbors: int = 5,
        metric: str = "euclidean",
        ef: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.ef = ef
        self.n_jobs = n_jobs

    def fit(self, X: object, y: object = None) -> L2RouteTransformer:  # noqa: N803
        """Index the samples X [n_samples, n_features]; y is ignored."""
        neighbors = L2RouteNeighbors(
            n_neighbors=self.n_neighbors, metric=self.metric, ef=self.ef, n_jobs=self.n_jobs
        )
        _check_metric(self.metric)
        _check_mode(self.mode, self.metric)
        samples = validate_data(self, X, dtype=(np.float64, np.float32))
        self.neighbors_ = neighbors.fit(samples)
        self.n_samples_fit_ = len(samples)
        self._n_features_out = len(samples)
        return self

    def transform(self, X: object) -> csr_matrix:  # noqa: N803
        """The graph from the samples X [n, n_features] to those of `fit` [n, n_samples_fit_]."""
        check_is_fitted(self)
        samples = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        k = self.n_neighbors + (self.mode == "distance")
        return self.neighbors_.kneighbors_graph(samples, k, self.mode)

    def fit_transform(self, X: object, y: object = None) -> csr_matrix:  # noqa: N803
        """Index the samples X [n_samples, n_features], and return the graph between them."""
        return self.fit(X, y).transform(X)


def _check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise ValueError(f"expected a metric of {', '.join(METRICS)}, got {metric!r}")


def _check_mode(mode: str, metric: str) -> None:
    if mode not in ("connectivity", "distance"):
        raise ValueError(f"expected mode connectivity or distance, got {mode!r}")
    if mode == "distance" and METRICS[metric] == "ip":
        raise ValueError(
            f"expected mode connectivity for inner products, which are not distances, got {mode!r}"
        )


def _count(name: str, given: object) -> int:
    if not isinstance(given, Integral) or given < 1:
        raise ValueError(f"expected {name} of at least 1, got {given!r}")
    return int(given)


def _threads(n_jobs: int | None) -> int:
    """The number of threads for the index, in which 0 is all cores."""
    if n_jobs is None or n_jobs == -1:
        return 0
    if n_jobs == 0:
        raise ValueError("expected n_jobs other than 0, got 0")
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


def _center(samples: NDArray[Any]) -> Distances:
    """The mean of the samples [n_features], finite if they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        center: Distances = samples.mean(axis=0, dtype=np.float64)
    return np.where(np.isfinite(center), center, 0.0)


def _without_self(ids: Ids) -> NDArray[np.bool_]:
    """Mark the neighbours of sample i but i itself; all but the last where it was not found."""
    keep: NDArray[np.bool_] = ids != np.arange(len(ids))[:, None]
    keep[keep.all(axis=1), -1] = False
    return keep


def _reach(radius: float, metric: str) -> float:
    """The radius as the index has it, and a little more: its distances are rounded to float32."""
    if not radius >= 0 and metric != "inner_product":
        raise ValueError(f"expected a radius of at least 0, got {radius}")
    if metric in ("euclidean", "l2"):
        radius = radius * radius
    return radius + ROUNDING * (1.0 if metric == "cosine" else abs(radius))


def _ragged(parts: list[NDArray[Any]]) -> NDArray[np.object_]:
    """An array of arrays [n], also where all have the same length."""
    ragged = np.empty(len(parts), dtype=object)
    for at, part in enumerate(parts):
        ragged[at] = part
    return ragged
