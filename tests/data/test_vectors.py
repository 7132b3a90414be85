"""Laws of vectors and datasets."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.vectors import (
    MAX_LENGTH,
    METRICS,
    check_lengths,
    check_metric,
    check_vectors,
    normalize,
)
from l2route.files.formats import read_array, write_array, write_hdf5, write_npz


def vectors(n: int, dim: int = 4, seed: int = 0) -> NDArray[np.float32]:
    """Draw some vectors."""
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def test_metrics_are_checked() -> None:
    """A known metric is returned; the error for another lists the known ones."""
    assert [check_metric(metric) for metric in METRICS] == ["l2", "ip", "cosine"]
    with pytest.raises(ValueError, match="expected metric l2, ip, cosine, got 'hamming'"):
        check_metric("hamming")


def test_sound_vectors_are_not_copied(tmp_path: Path) -> None:
    """C-contiguous float32 vectors are returned uncopied, and mapped ones stay mapped."""
    sound = vectors(3)
    assert check_vectors("base", sound, 4) is sound
    write_array(tmp_path / "a.npy", sound)
    mapped = read_array(tmp_path / "a.npy", mmap=True)
    assert np.shares_memory(check_vectors("base", mapped), mapped)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint8, ">f4"])
def test_any_real_dtype_becomes_float32(dtype: Any) -> None:
    """Vectors of any real dtype and memory order become contiguous float32 of equal value."""
    array = np.arange(12).astype(dtype).reshape(4, 3).T
    checked = check_vectors("base", array)
    assert checked.dtype == np.float32
    assert checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, array)
    np.testing.assert_array_equal(check_vectors("base", [[1, 2]]), [[1, 2]])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((5, 96)), r"expected queries \[\*, 128\], got \[\*, 96\]"),
        (np.ones(128), r"expected queries \[\*, 128\], got shape \[128\]"),
        (np.ones((0, 128)), r"expected queries \[n, d\] with n, d > 0, got \[0, 128\]"),
        (np.ones((1, 128), bool), "expected queries of real numbers, got dtype bool"),
        (np.ones((1, 128), complex), "got dtype complex128"),
        (np.full((1, 128), None), "got dtype object"),
        (np.full((1, 128), "a"), "got dtype <U1"),
        ([[1.0], [1.0, 2.0]], r"expected queries \[1\] in all rows, got \[2\] in row 1"),
        (np.vstack([np.ones((1, 128)), np.full((1, 128), np.nan)]), "NaN or inf in row 1"),
        (np.full((2, 128), -np.inf, np.float32), "NaN or inf in row 0"),
        (np.full((2, 128), 1e300), "expected queries to be finite float32"),
    ],
)
def test_bad_vectors_are_refused(array: object, message: str) -> None:
    """A wrong shape, dtype or value is refused with what was expected and found."""
    with pytest.raises(ValueError, match=message):
        check_vectors("queries", array, 128)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda torch: torch.ones(2, 3, device="meta"), "torch.Tensor of torch.float32: .*meta"),
        (lambda torch: torch.eye(3).to_sparse(), "torch.Tensor of torch.float32: .*Sparse"),
    ],
)
def test_what_numpy_cannot_read_is_refused(made: Any, message: str) -> None:
    """The error for tensors that numpy cannot convert says why."""
    given_ = made(pytest.importorskip("torch"))
    with pytest.raises(ValueError, match=f"expected queries that numpy can read, got a.*{message}"):
        check_vectors("queries", given_, 3)


def test_tensors_are_vectors() -> None:
    """Tensors that numpy can read are not copied."""
    tensor = pytest.importorskip("torch").ones(2, 3)
    vectors = check_vectors("queries", tensor, 3)
    assert vectors.ctypes.data == tensor.data_ptr()


def test_no_vectors_may_be_allowed() -> None:
    """With `may_be_empty` an array without rows is accepted if it has the right dimension."""
    nothing = check_vectors("queries", np.zeros((0, 4)), 4, may_be_empty=True)
    assert (nothing.shape, nothing.dtype) == ((0, 4), np.float32)
    for shape in ((0, 0), (3, 0)):
        with pytest.raises(ValueError, match="n, d > 0"):
            check_vectors("queries", np.zeros(shape), may_be_empty=True)


@pytest.mark.parametrize("n", [1, 5, 3000])
def test_vectors_that_are_too_long_are_named(n: int) -> None:
    """The error names the first row that is too long; many short vectors are accepted."""
    vectors = np.full((n, 4), 0.49 * MAX_LENGTH, dtype=np.float32)
    check_lengths("vectors", vectors)
    vectors[n // 2 :, 1] = MAX_LENGTH
    with pytest.raises(ValueError, match=rf"expected vectors of a length .* in row {n // 2}$"):
        check_lengths("vectors", vectors)


def test_no_dimension_is_refused() -> None:
    """Vectors of dimension 0 are refused."""
    with pytest.raises(ValueError, match=r"got \[3, 0\]"):
        check_vectors("base", np.ones((3, 0)))


@pytest.mark.parametrize("value", [1.0, 3e38])
def test_checking_many_vectors_takes_little_memory(value: float) -> None:
    """Checking a large array allocates no array of its size."""
    array = np.full((40_000, 128), value, np.float32)
    tracemalloc.start()
    check_vectors("base", array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes / 8


@settings(deadline=None)
@given(hnp.arrays(np.float32, (3, 5), elements=st.floats(-(2.0**120), 2.0**120, width=32)))
def test_normalized_vectors_have_unit_length(array: NDArray[np.float32]) -> None:
    """Normalised vectors have length 1 and the same direction; zero vectors stay zero."""
    unit = normalize(array)
    assert unit.dtype == np.float32
    lengths = np.linalg.norm(array.astype(np.float64), axis=1)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), lengths > 0, atol=1e-6)
    error = np.abs(unit * lengths[:, None] - array)
    assert (error <= 1e-6 * lengths[:, None]).all()


@pytest.mark.parametrize("suffix", ["npz", "hdf5", "h5"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("with_learn", [False, True])
def test_dataset_written_is_read(
    tmp_path: Path, suffix: str, metric: Any, with_learn: bool
) -> None:
    """A dataset read back equals the one written, and is named after its file."""
    dataset = Dataset(
        "x", vectors(5), vectors(2, seed=1), vectors(3) if with_learn else None, metric
    )
    dataset.write(tmp_path / f"mine.{suffix}")
    read = Dataset.read(tmp_path / f"mine.{suffix}")
    assert (read.name, read.metric) == ("mine", metric)
    np.testing.assert_array_equal(read.base, dataset.base)
    np.testing.assert_array_equal(read.query, dataset.query)
    assert (read.learn is None) is not with_learn
    if read.learn is not None:
        np.testing.assert_array_equal(read.learn, dataset.learn)
    assert Dataset.read(tmp_path / f"mine.{suffix}", "ip").metric == "ip"


def test_hdf5_is_as_ann_benchmarks_writes_it(tmp_path: Path) -> None:
    """An HDF5 file has ann-benchmarks' names and attributes, and unsquared l2 distances."""
    truth = np.array([[1, 0]]), np.array([[4.0, 9.0]], np.float32)
    Dataset("x", vectors(2), vectors(1)).write(tmp_path / "a.hdf5", truth)
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert set(file) == {"train", "test", "neighbors", "distances"}
        assert file.attrs["distance"] == "euclidean"
        assert file.attrs["dimension"] == 4
        assert file["neighbors"].dtype == np.int32
        np.testing.assert_array_equal(file["distances"], [[2.0, 3.0]])


@pytest.mark.parametrize("metric", ["ip", "cosine"])
def test_other_distances_are_kept(tmp_path: Path, metric: Any) -> None:
    """Only l2 distances are converted for ann-benchmarks."""
    truth = np.array([[1, 0]]), np.array([[-4.0, 9.0]], np.float32)
    Dataset("x", vectors(2), vectors(1), None, metric).write(tmp_path / "a.hdf5", truth)
    with h5py.File(tmp_path / "a.hdf5") as file:
        np.testing.assert_array_equal(file["distances"], truth[1])


def test_truth_must_fit_the_queries(tmp_path: Path) -> None:
    """Truth with another number of queries is refused."""
    truth = np.array([[1, 0]]), np.array([[4.0, 9.0]], np.float32)
    with pytest.raises(ValueError, match=r"ids and distances \[3, k\], got ids \[1, 2\]"):
        Dataset("x", vectors(2), vectors(3)).write(tmp_path / "a.hdf5", truth)


def test_foreign_files_are_understood(tmp_path: Path) -> None:
    """np.savez's uint8 vectors without a metric, and ann-benchmarks' angular files, are read."""
    np.savez(tmp_path / "a.npz", base=np.eye(3, dtype=np.uint8), query=np.eye(3))
    read = Dataset.read(tmp_path / "a.npz")
    assert read.metric == "l2"
    assert read.base.dtype == np.float32
    arrays = {"train": np.eye(3), "test": np.eye(3)}
    for stated, metric in {"angular": "cosine", "dot": "ip", "ip": "ip"}.items():
        write_hdf5(tmp_path / "a.h5", arrays, {"distance": stated})
        assert Dataset.read(tmp_path / "a.h5").metric == metric
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["distance"] = np.bytes_("euclidean")
    assert Dataset.read(tmp_path / "a.h5").metric == "l2"


def test_bad_datasets_are_refused(tmp_path: Path) -> None:
    """A dataset file with missing or inconsistent arrays is refused with its name."""
    one = np.ones((1, 2), np.float32)
    write_npz(tmp_path / "a.npz", {"base": one})
    write_npz(tmp_path / "b.npz", {"base": one, "query": np.ones((1, 3))})
    write_npz(tmp_path / "c.npz", {"base": one, "query": one, "metric": np.array("x")})
    write_hdf5(tmp_path / "a.h5", {"train": one, "test": one}, {"distance": "hamming"})
    write_hdf5(tmp_path / "b.h5", {"train": one, "test": one}, {})
    write_hdf5(tmp_path / "c.h5", {"train": one}, {"distance": "dot"})
    write_array(tmp_path / "a.npy", one)
    messages = {
        "a.npz": "expected arrays base and query, got base",
        "b.npz": r"expected query \[\*, 2\], got \[\*, 3\]",
        "c.npz": "expected metric",
        "a.h5": "expected distance euclidean, dot, ip, angular, got 'hamming'",
        "b.h5": "got 'none'",
        "c.h5": "expected a key out of train, got 'test'",
        "a.npy": "expected a dataset in .npz, .hdf5 or .h5",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message) as caught:
            Dataset.read(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
    assert Dataset.read(tmp_path / "a.h5", "l2").metric == "l2"
    with pytest.raises(ValueError, match="expected a dataset in"):
        Dataset("x", one, one).write(tmp_path / "a.fvecs")
    with pytest.raises(FileNotFoundError, match="no such file"):
        Dataset.read(tmp_path / "none.npz")


def test_dataset_cannot_be_changed() -> None:
    """A dataset is frozen, and checked on construction."""
    ones: Any = np.ones((1, 2))
    dataset = Dataset("x", ones, ones)
    assert dataset.base.dtype == np.float32
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "y"  # type: ignore[misc]
    with pytest.raises(ValueError, match="expected learn"):
        Dataset("x", ones, ones, vectors(1, 3))


def test_training_queries_are_required_by_name() -> None:
    """`training` of a dataset without training queries is an error that names the dataset."""
    dataset = Dataset("bare", vectors(3), vectors(1))
    with pytest.raises(ValueError, match=r"expected training queries \(learn\) in bare, got none"):
        _ = dataset.training
    assert len(dataclasses.replace(dataset, learn=vectors(2)).training) == 2
