"""Runs of the paper's experiments on small data."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.reproduce import plan
from l2route.reproduce.plan import PaperDataset
from l2route.reproduce.runner import RunStatus

MINUTES = 0.002
DIM = 128
"""The dimension of SIFT100K, so that the k and rDCS of the paper apply."""
N_BASE = 300


class Finished(NamedTuple):
    """A finished run of all experiments."""

    run: Path
    data: Path
    statuses: list[RunStatus]


@contextmanager
def tiny_paper() -> Iterator[None]:
    """Reduce the number of base vectors of the paper's datasets."""
    real = plan.paper_datasets

    def small() -> dict[str, PaperDataset]:
        return {name: replace(data, n_base=N_BASE) for name, data in real().items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "paper_datasets", small)
        yield


def make_file(directory: Path, name: str = "sift_tiny", n: int = N_BASE) -> Path:
    """Write clustered vectors with training and test queries of the same distribution."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, DIM))

    def draw(count: int) -> NDArray[np.float32]:
        near = centres[rng.integers(0, len(centres), count)]
        return (near + 0.5 * rng.normal(size=(count, DIM))).astype(np.float32)

    path = directory / f"{name}.npz"
    Dataset(name, draw(n), draw(40), draw(200)).write(path)
    return path
