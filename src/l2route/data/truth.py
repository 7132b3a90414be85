"""Exact nearest neighbours by brute force, cached under the hash of the vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, check_metric, check_vectors, normalize
from l2route.files.formats import list_keys, read_array, read_npz, write_npz
from l2route.files.hashing import hash_arrays
from l2route.files.progress import Progress, ignore

_CACHE_VERSION = 1  # part of the hash: a new number invalidates every cached truth
_BATCH = 4096  # queries between two reports of progress
_MARGIN = 16  # candidates beyond k in the first round
_GROWTH = 8  # factor from one round to the next
_MAX_PAIRS = 1 << 22  # (query, candidate) pairs held at once
_CHUNK_VALUES = 1 << 21  # values of float64 differences held at once
_UNIT_ROUNDOFF = 2.0**-24  # of float32
_UNDERFLOW = 2.0**-126  # smaller products may become zero


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class Truth:
    """Exact nearest neighbours of queries, nearest first, ties by id."""

    ids: NDArray[np.int64]
    """Neighbours [n_queries, k]; −1 at the end where there are fewer than k."""
    distances: NDArray[np.float32]
    """Their distances [n_queries, k]; inf where the id is −1."""


def exact_neighbors(
    base: object,
    queries: object,
    k: int,
    metric: str = "l2",
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Truth:
    """Find the exact k nearest neighbours of every query.

    Args:
        base: Vectors to search [n_base, d].
        queries: Queries [n_queries, d].
        k: Neighbours to find.
        metric: ``l2``, ``ip`` or ``cosine``.
        cache: Directory for results, in files named by the hash of the arguments.
        progress: Called with the queries done and their total, after every batch.

    Returns:
        Ids and distances [n_queries, k].
    """
    vectors = check_vectors("base", base)
    probes = check_vectors("queries", queries, vectors.shape[1])
    chosen = check_metric(metric)
    if k < 1:
        raise ValueError(f"expected k >= 1, got {k}")
    report = progress or ignore
    if cache is None:
        return _find(vectors, probes, k, chosen, report)
    key = _content_key(vectors, probes, k, chosen)
    path = Path(cache) / f"truth-{key}.npz"
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a directory")
    truth = _read_cached(path, key, (len(probes), k), len(vectors))
    if truth is not None:
        report(len(probes), len(probes))
        return truth
    return _write_cached(path, key, _find(vectors, probes, k, chosen, report))


def exact_distances(
    base: object, queries: object, ids: NDArray[np.integer[Any]], metric: str = "l2"
) -> NDArray[np.float32]:
    """Compute the distances of given neighbours, in double precision.

    Args:
        base: Vectors [n_base, d].
        queries: Queries [n_queries, d].
        ids: Neighbours [n_queries, k]; −1 stands for none.
        metric: ``l2``, ``ip`` or ``cosine``.

    Returns:
        Distances [n_queries, k]; inf where the id is −1.
    """
    vectors = check_vectors("base", base)
    probes = check_vectors("queries", queries, vectors.shape[1])
    if ids.ndim != 2 or len(ids) != len(probes):
        raise ValueError(f"expected ids [{len(probes)}, k], got {list(ids.shape)}")
    _check_ids("ids", ids, len(vectors))
    return _rounded(_distances(vectors, probes, ids.astype(np.int64), check_metric(metric)))


def read_truth(source: str | Path, n_base: int, n_queries: int | None = None) -> NDArray[np.int64]:
    """Read ids of true neighbours from a file.

    Args:
        source: ivecs, npy, npz or HDF5; in the last two the key may be omitted if it is
            ``neighbors`` or ``ids``.
        n_base: Number of base vectors: every id must be below it.
        n_queries: Number of rows expected, if known.

    Returns:
        Ids [n_queries, k], nearest first; −1 only at the end of a row.
    """
    ids = read_array(_with_key(source))
    _check_ids(str(source), ids, n_base)
    if n_queries is not None and len(ids) != n_queries:
        raise ValueError(f"{source}: expected truth of {n_queries} queries, got {len(ids)}")
    ordered = np.sort(ids, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise ValueError(f"{source}: expected distinct ids in every row, got a repeated one")
    if ((ids[:, 1:] >= 0) & (ids[:, :-1] < 0)).any():
        raise ValueError(f"{source}: expected −1 only at the end of a row, got it before an id")
    return ids.astype(np.int64)


def _with_key(source: str | Path) -> str | Path:
    path = Path(source)
    if not path.is_file() or path.suffix.lower() not in (".npz", ".hdf5", ".h5"):
        return source
    keys = list_keys(path)
    return next((f"{path}:{key}" for key in ("neighbors", "ids") if key in keys), source)


def _check_ids(name: str, ids: NDArray[Any], n_base: int) -> None:
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integer ids, got dtype {ids.dtype}")
    low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
    if low < -1 or high >= n_base:
        raise ValueError(f"{name}: expected ids in [0, {n_base}), got {low if low < -1 else high}")


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Base vectors and queries, and both as transformed for faiss to find candidates."""

    base: NDArray[np.float32]
    queries: NDArray[np.float32]
    metric: Metric
    points: NDArray[np.float32]
    """The base, centred for l2 or normalised for cosine."""
    probes: NDArray[np.float32]
    """The queries, transformed in the same way."""
    max_length: float
    """Length of the longest of `points`."""


def _find(
    base: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    metric: Metric,
    report: Progress,
) -> Truth:
    n_queries, n_kept = len(queries), min(k, len(base))
    problem = _prepare(base, queries, metric)
    ids = np.full((n_queries, k), -1, np.int64)
    distances = np.full((n_queries, k), np.inf, np.float32)
    for start in range(0, n_queries, _BATCH):
        rows = np.arange(start, min(start + _BATCH, n_queries))
        found, exact = _prove(problem, rows, n_kept, n_kept + _MARGIN)
        ids[rows, :n_kept], distances[rows, :n_kept] = found, _rounded(exact)
        report(int(rows[-1]) + 1, n_queries)
    return Truth(ids, distances)


def _prepare(base: NDArray[np.float32], queries: NDArray[np.float32], metric: Metric) -> _Problem:
    """Transform vectors for faiss: centred for l2, normalised for cosine."""
    points, probes = base, queries
    if metric == "l2":  # a shift changes no distance; rounding is least around the mean
        centre = base.mean(axis=0, dtype=np.float64).astype(np.float32)
        with np.errstate(over="ignore"):
            points, probes = base - centre, queries - centre
    elif metric == "cosine":
        points, probes = normalize(base), normalize(queries)
    max_length = float(_lengths(points).max())
    return _Problem(base, queries, metric, points, probes, max_length)


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.sqrt(squares)


def _prove(
    problem: _Problem, rows: NDArray[np.int64], k: int, n_candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find neighbours among candidates, more in every round, until no other vector can be nearer.

    Args:
        problem: The vectors.
        rows: Queries to answer [n].
        k: Neighbours to find, at most n_base.
        n_candidates: Candidates of the first round.

    Returns:
        Ids [n, k] and distances [n, k].
    """
    ids = np.empty((len(rows), k), np.int64)
    distances = np.empty((len(rows), k), np.float64)
    step = max(1, _MAX_PAIRS // n_candidates)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        found, floor = _candidates(problem, rows[part], n_candidates)
        exact = _distances(problem.base, problem.queries[rows[part]], found, problem.metric)
        order = np.lexsort((found, exact), axis=-1)[:, :k]
        ids[part] = np.take_along_axis(found, order, axis=1)
        distances[part] = np.take_along_axis(exact, order, axis=1)
        if n_candidates >= len(problem.base):
            continue
        slack = _rounding(problem, rows[part], distances[part, -1])
        unproven = start + np.flatnonzero(~(distances[part, -1] < floor - slack))
        if unproven.size:
            more = _prove(problem, rows[unproven], k, n_candidates * _GROWTH)
            ids[unproven], distances[unproven] = more
    return ids, distances


def _candidates(
    problem: _Problem, rows: NDArray[np.int64], n_candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Candidates of queries [n, n_candidates], and faiss's distance of the farthest of them [n]."""
    n_base = len(problem.base)
    if n_candidates >= n_base:
        return np.tile(np.arange(n_base), (len(rows), 1)), np.full(len(rows), np.inf)
    kind = faiss.METRIC_L2 if problem.metric == "l2" else faiss.METRIC_INNER_PRODUCT
    scores, found = faiss.knn(problem.probes[rows], problem.points, n_candidates, metric=kind)
    last = scores[:, -1].astype(np.float64)  # [n], the farthest candidate as faiss measures it
    if problem.metric == "l2":
        return found, last
    return found, (1.0 - last if problem.metric == "cosine" else -last)


def _rounding(
    problem: _Problem, rows: NDArray[np.int64], farthest: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Upper bound of the rounding error of faiss's scores [n].

    faiss multiplies matrices in float32. Its error is at most about d roundoffs of the product of
    the lengths, and d underflows. The bound is twice that, to cover normalising or centring. Under
    l2 a vector longer than |q| + sqrt(farthest) is farther than the k-th neighbour in any case.

    Args:
        problem: The vectors.
        rows: Queries [n].
        farthest: Distance of the k-th neighbour of each [n].
    """
    lengths = _lengths(problem.probes[rows])
    if problem.metric == "l2":
        scale = np.square(2 * lengths + np.sqrt(farthest))
    else:
        scale = lengths * problem.max_length
    n_terms = 2 * (problem.base.shape[1] + 8)
    error: NDArray[np.float64] = n_terms * (_UNIT_ROUNDOFF * scale + _UNDERFLOW)
    return error


def _distances(
    base: NDArray[np.float32],
    queries: NDArray[np.float32],
    ids: NDArray[np.int64],
    metric: Metric,
) -> NDArray[np.float64]:
    """Distances of neighbours [n_queries, k] in double precision; inf where the id is −1."""
    n_queries, k = ids.shape
    flat = ids.reshape(-1)
    distances = np.empty(flat.shape, np.float64)
    step = max(1, _CHUNK_VALUES // base.shape[1])
    for start in range(0, len(flat), step):
        pairs = np.arange(start, min(start + step, len(flat)))
        vectors = base[flat[pairs]].astype(np.float64)  # [step, d]
        distances[pairs] = _pairwise(queries[pairs // k].astype(np.float64), vectors, metric)
    distances[flat < 0] = np.inf
    return distances.reshape(n_queries, k)


def _rounded(distances: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        return distances.astype(np.float32)


def _pairwise(
    queries: NDArray[np.float64], vectors: NDArray[np.float64], metric: Metric
) -> NDArray[np.float64]:
    if metric == "l2":
        vectors -= queries
        return _dots(vectors, vectors)
    products = _dots(queries, vectors)
    if metric == "ip":
        return -products
    norms = np.sqrt(_dots(queries, queries) * _dots(vectors, vectors))
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.maximum(1.0 - cosines, 0.0)  # rounding must not make a distance negative


def _dots(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    dots: NDArray[np.float64] = np.einsum("ij,ij->i", left, right)
    return dots


def _content_key(
    base: NDArray[np.float32], queries: NDArray[np.float32], k: int, metric: Metric
) -> str:
    return hash_arrays(f"{_CACHE_VERSION} {metric} {k}", base, queries)


def _checksum(key: str, truth: Truth) -> str:
    return hash_arrays(key, truth.ids, truth.distances)


def _write_cached(path: Path, key: str, truth: Truth) -> Truth:
    path.parent.mkdir(parents=True, exist_ok=True)
    checksum = np.array(_checksum(key, truth))
    write_npz(path, {"ids": truth.ids, "distances": truth.distances, "checksum": checksum})
    return truth


def _read_cached(path: Path, key: str, shape: tuple[int, int], n_base: int) -> Truth | None:
    try:
        arrays = read_npz(path)
        ids, distances, checksum = arrays["ids"], arrays["distances"], str(arrays["checksum"])
        if ids.shape != shape or ids.dtype != np.int64:
            return None
        if distances.shape != shape or distances.dtype != np.float32:
            return None
        _check_ids(str(path), ids, n_base)
    except (OSError, ValueError, KeyError):
        return None
    truth = Truth(np.ascontiguousarray(ids), np.ascontiguousarray(distances))
    return truth if checksum == _checksum(key, truth) else None
