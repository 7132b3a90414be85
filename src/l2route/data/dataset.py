"""Datasets: base vectors, test queries and training queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, check_metric, check_vectors
from l2route.files.formats import (
    list_keys,
    read_array,
    read_attributes,
    read_npz,
    write_hdf5,
    write_npz,
)

_TO_ANNBENCH: dict[Metric, str] = {"l2": "euclidean", "ip": "dot", "cosine": "angular"}
_FROM_ANNBENCH: dict[str, Metric] = {
    "euclidean": "l2",
    "dot": "ip",
    "ip": "ip",
    "angular": "cosine",
}


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class Dataset:
    """Base vectors, test queries and training queries."""

    name: str
    """A short name for tables and file names."""
    base: NDArray[np.float32]
    """Vectors to search [n_base, d]."""
    query: NDArray[np.float32]
    """Test queries [n_query, d]; for final results only."""
    learn: NDArray[np.float32] | None = None
    """Training queries [n_learn, d]; None if there are none, where `training` is an error."""
    metric: Metric = "l2"
    """How distance is measured."""

    def __post_init__(self) -> None:
        base = check_vectors("base", self.base)
        dim = base.shape[1]
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "query", check_vectors("query", self.query, dim))
        if self.learn is not None:
            object.__setattr__(self, "learn", check_vectors("learn", self.learn, dim))
        check_metric(self.metric)

    @property
    def training(self) -> NDArray[np.float32]:
        """The training queries [n_learn, d]; an error if there are none."""
        if self.learn is None:
            raise ValueError(f"expected training queries (learn) in {self.name}, got none")
        return self.learn

    @classmethod
    def read(cls, path: str | Path, metric: str | None = None) -> Dataset:
        """Read a dataset from an npz file or an ann-benchmarks HDF5 file.

        Args:
            path: An npz with ``base``, ``query`` and optionally ``learn`` and ``metric``; or an
                HDF5 with ``train``, ``test`` and optionally ``learn``.
            metric: Overrides the file's metric; an npz without one is ``l2``.

        Returns:
            The dataset, named after the file.
        """
        path = Path(path)
        chosen = None if metric is None else check_metric(metric)
        _check_suffix(path)
        if path.suffix.lower() == ".npz":
            return _read_npz_dataset(path, chosen)
        return _read_hdf5_dataset(path, chosen)

    def write(
        self,
        path: str | Path,
        truth: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None,
    ) -> None:
        """Write the dataset to an npz file, or to an HDF5 file that ann-benchmarks reads.

        Args:
            path: The file; its suffix decides the format.
            truth: Ids and distances [n_query, k] of the nearest neighbours in this library's
                units; written as ``neighbors`` and ``distances`` in those of ann-benchmarks,
                whose Euclidean distances are not squared.
        """
        path = Path(path)
        _check_suffix(path)
        extra: dict[str, NDArray[Any]] = {} if self.learn is None else {"learn": self.learn}
        if truth is not None:
            extra |= _annbench_truth(truth, self.metric, len(self.query))
        if path.suffix.lower() == ".npz":
            arrays = {"base": self.base, "query": self.query, **extra}
            write_npz(path, {**arrays, "metric": np.array(self.metric)})
            return
        attributes = {
            "distance": _TO_ANNBENCH[self.metric],
            "dimension": self.base.shape[1],
            "type": "dense",
            "point_type": "float",
        }
        write_hdf5(path, {"train": self.base, "test": self.query, **extra}, attributes)


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() not in (".npz", ".hdf5", ".h5"):
        raise ValueError(f"{path}: expected a dataset in .npz, .hdf5 or .h5, got {path.suffix!r}")


def _read_npz_dataset(path: Path, metric: Metric | None) -> Dataset:
    arrays = read_npz(path)
    missing = {"base", "query"} - arrays.keys()
    if missing:
        raise ValueError(f"{path}: expected arrays base and query, got {', '.join(arrays)}")
    stated = str(arrays["metric"]) if "metric" in arrays else "l2"
    return _checked_dataset(
        path, arrays["base"], arrays["query"], arrays.get("learn"), metric or stated
    )


def _read_hdf5_dataset(path: Path, metric: Metric | None) -> Dataset:
    keys = list_keys(path)
    stated = read_attributes(path).get("distance", "none")
    if metric is None and stated not in _FROM_ANNBENCH:
        known = ", ".join(_FROM_ANNBENCH)
        raise ValueError(f"{path}: expected distance {known}, got {stated!r}; give the metric")
    learn = read_array(f"{path}:learn") if "learn" in keys else None
    base, query = read_array(f"{path}:train"), read_array(f"{path}:test")
    return _checked_dataset(path, base, query, learn, metric or _FROM_ANNBENCH[stated])


def _checked_dataset(path: Path, base: Any, query: Any, learn: Any, metric: str) -> Dataset:
    try:
        return Dataset(path.stem, base, query, learn, check_metric(metric))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _annbench_truth(
    truth: tuple[NDArray[np.int64], NDArray[np.float32]], metric: Metric, n_query: int
) -> dict[str, NDArray[Any]]:
    ids, distances = (np.asarray(part) for part in truth)
    if ids.shape != distances.shape or ids.ndim != 2 or len(ids) != n_query:
        got = f"ids {list(ids.shape)} and distances {list(distances.shape)}"
        raise ValueError(f"expected truth ids and distances [{n_query}, k], got {got}")
    if metric == "l2":
        distances = np.sqrt(distances)
    return {"neighbors": ids.astype(np.int32), "distances": distances.astype(np.float32)}
