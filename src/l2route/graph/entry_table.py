"""EntryTable: entry points of a search that depend on its query."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from l2route.files.finite import first_nonfinite_row

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Clusters of logged queries, and for each of them the vertices that a walk starts at.

    The cluster of a query is found in two levels: the nearest of the groups, then the nearest of
    its clusters, by a few coordinates of the query. Everything is checked on construction, because
    the core does not check.
    """

    coordinates: Ids
    """Coordinates of queries by which clusters are told apart, distinct [d]."""
    groups: NDArray[np.float32]
    """Centroids of the groups [n_groups, d]."""
    centroids: NDArray[np.float32]
    """Centroids of the clusters [n_clusters, d]."""
    members: Ids
    """Clusters of each group, padded with −1 at the end [n_groups, longest]. A cluster may be in
    several groups."""
    vertices: Ids
    """Entry points of each cluster, −1 for none [n_clusters, width]."""

    def __post_init__(self) -> None:
        for name in ("coordinates", "members", "vertices"):
            if getattr(self, name).dtype != np.int32:
                got = getattr(self, name).dtype
                raise ValueError(f"expected {name} of an entry table int32, got {got}")
        (d,), n, c = self.coordinates.shape, len(self.groups), len(self.centroids)
        shapes = (self.groups.shape, self.centroids.shape)
        if shapes != ((n, d), (c, d)) or min(d, n, c) < 1:
            raise ValueError(f"expected groups and clusters of {d} coordinates, got {shapes}")
        if len(np.unique(self.coordinates)) != d or self.coordinates.min() < 0:
            raise ValueError("expected distinct coordinates of at least 0 in an entry table")
        for name in ("groups", "centroids"):
            row = first_nonfinite_row(getattr(self, name))
            if row is not None:
                expected = f"finite numbers in entry_{name}"
                raise ValueError(f"expected {expected}, got NaN or inf in row {row}")
        self._check_lists(n, c)

    def _check_lists(self, n_groups: int, n_clusters: int) -> None:
        members, vertices = self.members, self.vertices
        if members.ndim != 2 or len(members) != n_groups or members.shape[1] < 1:
            raise ValueError(f"expected members [{n_groups}, *], got {members.shape}")
        if members.min() < -1 or members.max() >= n_clusters or (members[:, 0] < 0).any():
            got = f"{members.min()} to {members.max()}"
            raise ValueError(f"expected members of every group below {n_clusters}, got {got}")
        if ((members[:, :-1] < 0) & (members[:, 1:] >= 0)).any():
            raise ValueError("expected members padded with -1 at the end of rows only")
        if vertices.ndim != 2 or len(vertices) != n_clusters or vertices.shape[1] < 1:
            raise ValueError(f"expected entry vertices [{n_clusters}, *], got {vertices.shape}")
        if not vertices.flags.c_contiguous:
            raise ValueError("expected contiguous entry vertices")

    def check_fits(self, n_vertices: int) -> None:
        """Refuse entry points that are not vertices of a graph."""
        low, high = int(self.vertices.min()), int(self.vertices.max())
        if low < -1 or high >= n_vertices:
            got = f"{low} to {high}"
            raise ValueError(f"expected entry vertices in [-1, {n_vertices}), got {got}")

    def mapped(self, numbers: Ids) -> "EntryTable":
        """The same table for vertices with other numbers [n], −1 for those that are gone."""
        vertices = np.where(self.vertices >= 0, numbers[self.vertices], np.int32(-1))
        return replace(self, vertices=vertices.astype(np.int32))

    def copy(self) -> "EntryTable":
        """The same table with entry points of its own, to be changed in place."""
        return replace(self, vertices=self.vertices.copy())

    def forget(self, labels: NDArray[np.int64]) -> None:
        """Remove entry points whose label is −1 in place, while others may be searching.

        Args:
            labels: of the vertices [at least n].
        """
        gone = (self.vertices >= 0) & (labels[self.vertices] == -1)
        if gone.any():
            self.vertices[gone] = -1
