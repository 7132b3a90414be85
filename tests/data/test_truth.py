"""Laws of exact nearest neighbours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route.data import truth as truth_module
from l2route.data.dataset import Dataset
from l2route.data.truth import Truth, exact_distances, exact_neighbors, read_truth
from l2route.data.vectors import METRICS
from l2route.files.formats import read_npz, write_array, write_npz


def slow_distance(query: NDArray[Any], vector: NDArray[Any], metric: str) -> float:
    """One distance, straight from its definition."""
    q, v = query.astype(np.float64), vector.astype(np.float64)
    if metric == "l2":
        return float(np.sum((v - q) ** 2))
    if metric == "ip":
        return float(-np.sum(q * v))
    norms = np.sqrt(np.sum(q * q) * np.sum(v * v))
    return max(1.0 - float(np.sum(q * v) / norms if norms > 0 else 0.0), 0.0)


def slow_neighbors(base: NDArray[Any], queries: NDArray[Any], k: int, metric: str) -> Truth:
    """Neighbours by computing and sorting all distances."""
    ids = np.full((len(queries), k), -1, np.int64)
    distances = np.full((len(queries), k), np.inf, np.float32)
    for row, query in enumerate(queries):
        pairs = sorted((slow_distance(query, vector, metric), i) for i, vector in enumerate(base))
        for rank, (distance, i) in enumerate(pairs[:k]):
            ids[row, rank], distances[row, rank] = i, distance
    return Truth(ids, distances)


def draw(n: int, dim: int = 8, seed: int = 0) -> NDArray[np.float32]:
    """Draw some vectors."""
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


@pytest.mark.parametrize("metric", METRICS)
@settings(deadline=None, max_examples=40)
@given(
    hnp.arrays(np.int8, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(-2, 2)),
    hnp.arrays(np.int8, st.tuples(st.integers(1, 5), st.just(3)), elements=st.integers(-2, 2)),
    st.integers(1, 50),
)
def test_equals_the_slow_twin_on_ties(
    metric: str, base: NDArray[Any], queries: NDArray[Any], k: int
) -> None:
    """On small integers, with many ties and zeros, ids and distances equal those of the twin."""
    expected = slow_neighbors(base, queries, k, metric)
    found = exact_neighbors(base, queries, k, metric)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-6, atol=1e-7)
    if metric != "cosine":  # rounding can break its ties
        np.testing.assert_array_equal(found.ids, expected.ids)


@pytest.mark.parametrize("metric", METRICS)
def test_equals_the_slow_twin_on_real_numbers(metric: str) -> None:
    """On Gaussian vectors the neighbours equal those of the twin."""
    base, queries = draw(300), draw(20, seed=1)
    expected = slow_neighbors(base, queries, 10, metric)
    found = exact_neighbors(base, queries, 10, metric)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-6)
    assert found.ids.dtype == np.int64
    assert found.distances.dtype == np.float32


@pytest.mark.parametrize(
    ("scale", "offset"), [(1.0, 1000.0), (1e-3, 100.0), (1e25, 0.0), (1e-25, 0.0)]
)
def test_is_exact_where_float32_products_are_not(scale: float, offset: float) -> None:
    """Neighbours are exact for vectors far from the origin, huge ones and tiny ones."""
    base, queries = draw(400) * np.float32(scale) + np.float32(offset), draw(30, seed=1)
    queries = queries * np.float32(scale) + np.float32(offset)
    found = exact_neighbors(base, queries, 5)
    differences = base[None].astype(np.float64) - queries[:, None]
    distances = np.square(differences).sum(axis=2)
    np.testing.assert_array_equal(found.ids, np.argsort(distances, axis=1)[:, :5])


def test_duplicates_beyond_the_margin_are_ordered_by_id() -> None:
    """Of more equal vectors than candidates, those with the lowest ids are returned."""
    base = np.vstack([draw(5), np.ones((500, 8)), draw(5, seed=1)])
    found = exact_neighbors(base, np.ones((3, 8)), 7)
    np.testing.assert_array_equal(found.ids, np.tile(np.arange(5, 12), (3, 1)))
    assert (found.distances == 0).all()


def test_an_outlier_costs_no_further_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """One outlier does not increase the rounding bound of near vectors, or the rounds."""
    calls: list[int] = []
    plain = truth_module._candidates

    def counted(problem: Any, rows: Any, n_candidates: int) -> Any:
        calls.append(n_candidates)
        return plain(problem, rows, n_candidates)

    monkeypatch.setattr(truth_module, "_candidates", counted)
    base = draw(2000)
    base[7] *= 1000
    exact_neighbors(base, draw(50, seed=1), 10)
    assert len(calls) == 1


def test_fewer_vectors_than_k_leave_a_padded_end() -> None:
    """Where there are fewer than k vectors, ids end in −1 and distances in inf."""
    found = exact_neighbors(draw(3), draw(2, seed=1), 5)
    assert (found.ids[:, 3:] == -1).all()
    assert np.isinf(found.distances[:, 3:]).all()
    assert (np.sort(found.ids[:, :3]) == [0, 1, 2]).all()


def test_results_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on batch and chunk sizes, and progress counts up to the total."""
    base, queries = draw(500), draw(25, seed=1)
    whole = exact_neighbors(base, queries, 4)
    monkeypatch.setattr(truth_module, "_BATCH", 10)
    monkeypatch.setattr(truth_module, "_MAX_PAIRS", 64)
    monkeypatch.setattr(truth_module, "_CHUNK_VALUES", 50)
    seen: list[tuple[int, int]] = []
    parts = exact_neighbors(base, queries, 4, progress=lambda done, n: seen.append((done, n)))
    assert seen == [(10, 25), (20, 25), (25, 25)]
    np.testing.assert_array_equal(parts.ids, whole.ids)
    np.testing.assert_array_equal(parts.distances, whole.distances)


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_of_the_neighbours(metric: str) -> None:
    """`exact_distances` of the neighbours equals their distances; inf for −1."""
    base, queries = draw(50), draw(4, seed=1)
    found = exact_neighbors(base, queries, 6, metric)
    np.testing.assert_array_equal(
        exact_distances(base, queries, found.ids, metric), found.distances
    )
    found.ids[0, 5] = -1
    assert np.isinf(exact_distances(base, queries, found.ids, metric)[0, 5])
    for ids in (found.ids[:2], np.array([50]), np.full((4, 1), 50), np.full((4, 1), -2)):
        with pytest.raises(ValueError, match="expected ids"):
            exact_distances(base, queries, ids)


def test_bad_arguments_are_refused() -> None:
    """A wrong dimension, metric or k is refused before any work."""
    with pytest.raises(ValueError, match=r"expected queries \[\*, 8\], got \[\*, 7\]"):
        exact_neighbors(draw(3), draw(3, 7), 1)
    with pytest.raises(ValueError, match="expected metric"):
        exact_neighbors(draw(3), draw(3), 1, "dot")
    with pytest.raises(ValueError, match="expected k >= 1, got 0"):
        exact_neighbors(draw(3), draw(3), 0)


def test_cache_is_used_and_keyed_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same arguments are computed once; other vectors, k or metric are computed again."""
    base, queries, cache = draw(60), draw(5, seed=1), tmp_path / "deep" / "cache"
    first = exact_neighbors(base, queries, 3, cache=cache)
    for changed in (
        (base + 1, queries, 3, "l2"),
        (base, queries + 1, 3, "l2"),
        (base, queries, 2, "l2"),
        (base, queries, 3, "ip"),
        (base.reshape(120, 4), queries.reshape(10, 4), 3, "l2"),
    ):
        exact_neighbors(*changed, cache=cache)
    assert len(list(cache.glob("truth-*.npz"))) == 6
    monkeypatch.setattr(truth_module, "_find", None)  # computing again would fail
    seen: list[tuple[int, int]] = []
    again = exact_neighbors(
        base, queries, 3, cache=cache, progress=lambda done, n: seen.append((done, n))
    )
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.distances, first.distances)
    assert seen == [(5, 5)]


def test_damaged_cache_is_computed_again(tmp_path: Path) -> None:
    """A cache file that is corrupt, forged or of another key is recomputed and rewritten."""
    base, queries = draw(60), draw(5, seed=1)
    first = exact_neighbors(base, queries, 3, cache=tmp_path)
    (path,) = tmp_path.glob("truth-*.npz")
    raw, arrays = path.read_bytes(), read_npz(path)
    forgeries: list[dict[str, Any]] = [
        {**arrays, "ids": arrays["ids"][:, ::-1]},
        {**arrays, "ids": arrays["ids"] + 60},
        {**arrays, "ids": arrays["ids"].astype(np.int32)},
        {**arrays, "ids": arrays["ids"][:2]},
        {**arrays, "distances": arrays["distances"] + 1},
        {**arrays, "distances": arrays["distances"].astype(np.float64)},
        {**arrays, "checksum": np.array("0" * 32)},
        {"ids": arrays["ids"]},
    ]
    for forgery in forgeries:
        write_npz(path, forgery)
        again = exact_neighbors(base, queries, 3, cache=tmp_path)
        np.testing.assert_array_equal(again.ids, first.ids)
        assert path.read_bytes() == raw
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(raw), 40):
        path.unlink()  # truncating in place makes some file systems wait for the disk
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1 :])
        again = exact_neighbors(base, queries, 3, cache=tmp_path)
        np.testing.assert_array_equal(again.ids, first.ids)
        np.testing.assert_array_equal(again.distances, first.distances)


def test_what_is_no_file_is_not_read_from_the_cache(tmp_path: Path) -> None:
    """A named pipe in place of a cache file is replaced; a directory is refused at once."""
    base, queries = draw(60), draw(5, seed=1)
    first = exact_neighbors(base, queries, 3, cache=tmp_path)
    (path,) = tmp_path.glob("truth-*.npz")
    path.unlink()
    os.mkfifo(path)
    np.testing.assert_array_equal(exact_neighbors(base, queries, 3, cache=tmp_path).ids, first.ids)
    assert path.is_file()
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"\.npz: expected a file, got a directory"):
        exact_neighbors(base, queries, 3, cache=tmp_path)


def test_truth_of_a_user_is_read(tmp_path: Path) -> None:
    """Ids are read as int64 from ivecs, npy, npz and ann-benchmarks' HDF5 files."""
    base, queries = draw(30), draw(4, seed=1)
    found = exact_neighbors(base, queries, 3)
    write_array(tmp_path / "t.ivecs", found.ids)
    write_array(tmp_path / "t.npy", found.ids)
    write_array(tmp_path / "t.npz:mine", found.ids)
    dataset = Dataset("x", base, queries)
    for suffix in ("npz", "hdf5"):
        dataset.write(tmp_path / f"d.{suffix}", (found.ids, found.distances))
    for name in ("t.ivecs", "t.npy", "t.npz", "t.npz:mine", "d.npz", "d.hdf5", "d.h5:neighbors"):
        if name.startswith("d.h5"):
            (tmp_path / "d.hdf5").rename(tmp_path / "d.h5")
        ids = read_truth(tmp_path / name, 30, 4)
        assert ids.dtype == np.int64
        np.testing.assert_array_equal(ids, found.ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 30]], r"expected ids in \[0, 30\), got 30"),
        ([[0, -2]], r"expected ids in \[0, 30\), got -2"),
        ([[0.0, 1.0]], "expected integer ids, got dtype float64"),
        ([[1, 1]], "expected distinct ids"),
        ([[-1, 1]], "expected −1 only at the end"),
        ([[0, 1], [1, 0]], "expected truth of 1 queries, got 2"),
    ],
)
def test_bad_truth_is_refused(tmp_path: Path, ids: Any, message: str) -> None:
    """Ids that cannot be neighbours are refused with the name of the file."""
    write_array(tmp_path / "t.npy", np.array(ids))
    with pytest.raises(ValueError, match=message):
        read_truth(tmp_path / "t.npy", 30, 1)


def test_padded_truth_is_accepted(tmp_path: Path) -> None:
    """Any number of −1 at the end of a row is accepted."""
    write_array(tmp_path / "t.npy", np.array([[2, -1, -1], [0, 1, -1]]))
    np.testing.assert_array_equal(read_truth(tmp_path / "t.npy", 3), [[2, -1, -1], [0, 1, -1]])
