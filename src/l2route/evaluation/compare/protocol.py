"""The interface of a search method in a comparison, ours or another library's."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
MAX_KNOB = 1 << 24
"""Largest knob that `knob_for` tries."""


class Method(Protocol):
    """A search method: build once, then set its knob and search, on one thread.

    The knob is the parameter that trades speed for recall, such as the beam width.
    """

    @property
    def knobs(self) -> tuple[int, ...]:
        """Values of the knob to compare at, ascending."""

    @property
    def learn_seconds(self) -> float:
        """Seconds of `build` that were spent on learning; 0 for a method that does not learn."""

    def build(self, data: Dataset) -> None:
        """Index the base vectors; a method that learns uses the training queries too."""

    def set(self, knob: int) -> None:
        """Set the knob: a larger one is slower and finds more."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest [n_queries, k]; −1 where fewer were found."""

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances computed by each search for k [n_queries]; None if they are not counted."""

    def n_bytes(self) -> int | None:
        """Size of the saved index, vectors included; None if it cannot be saved."""


def knob_for(method: Method, queries: Vectors, k: int, budget: float) -> int:
    """The largest knob at which searches compute no more distances than a budget, on average.

    Args:
        method: a built method that counts its distances; its knob is set to the result.
        queries: queries to count on; other ones than those of the measurement.
        k: answers per query.
        budget: distance computations per query.
    """

    def mean(knob: int) -> float:
        method.set(knob)
        counts = method.count(queries, k)
        if counts is None:
            raise ValueError(
                f"expected a method that counts its distances, got {type(method).__name__}"
            )
        return float(counts.mean())

    if (least := mean(1)) > budget:
        raise ValueError(f"expected a method that can stay within {budget:g}, got {least:.0f}")
    low, high = 1, 2
    while high < MAX_KNOB and mean(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) <= budget else (low, middle)
    method.set(low)
    return low
