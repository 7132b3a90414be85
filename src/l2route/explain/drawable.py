"""Drawable: what pictures need to know of an explanation."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.explain.walk import Walk

View = Literal["plane", "distance"]
"""How points are placed on a figure."""


class Drawable(Protocol):
    """An explanation; see `l2route.explain.explanation.Explanation` for its fields."""

    @property
    def k(self) -> int:
        """Answers."""

    @property
    def metric(self) -> str:
        """l2, ip or cosine."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the points [n_points]."""

    @property
    def distances(self) -> NDArray[np.float32]:
        """True distances of the points to the query [n_points]."""

    @property
    def neighbors(self) -> NDArray[np.int64]:
        """Points that are the true neighbours, nearest first."""

    @property
    def positions(self) -> NDArray[np.float64]:
        """Coordinates of the points [n_points, 2]."""

    @property
    def origin(self) -> NDArray[np.float64]:
        """Coordinates of the query [2]."""

    @property
    def walks(self) -> Sequence[Walk]:
        """The walks."""

    def name_of(self, point: int) -> str:
        """The name of a point."""

    def to_dict(self) -> dict[str, Any]:
        """All values as plain ones, for JSON."""
