"""IndexState: the immutable content of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.labels import Labels
from l2route.data.vectors import as_array
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.drift import Drift
from l2route.search.filter import slots_by_label
from l2route.search.searcher import Searcher
from l2route.search.setting import Loss, Setting, SettingKey
from l2route.search.space import RoutingSpace, original_space
from l2route.search.stopping import RuleKey, StoppingRule
from l2route.search.validation import Validation
from l2route.state.entry_record import arrays_of_table
from l2route.state.names import new_names
from l2route.state.space_record import arrays_of_space

if TYPE_CHECKING:
    from l2route.state.living import Living


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class IndexState:
    """The content of an index.

    A state is never modified: each change makes a new one. The exception is the state of a living
    index, whose arrays are the buffers of `living`: its vertices are slots, in use or not.
    """

    base: BaseVectors
    graph: Graph
    searchers: dict[str, Searcher]
    """Searchers by the name of their space: the original space first, the default space last."""
    labels: NDArray[np.int64] | None = None
    """Id of each vertex in answers [n], distinct and not −1; None for row numbers."""
    validation: Validation | None = None
    """Queries on which settings are measured."""
    settings: Mapping[SettingKey, Setting] = field(default_factory=dict)
    """Settings measured so far, by space, k, recall, share that passes and guarantee."""
    losses: Mapping[str, Loss] = field(default_factory=dict)
    """Losses of recall by compression, by the name of the compressed space."""
    drifts: Mapping[str, Drift] = field(default_factory=dict)
    """Drift of spaces when it was last measured, by the name of the space; not saved."""
    rules: Mapping[RuleKey, StoppingRule] = field(default_factory=dict)
    """Learned stopping rules, by space and k."""
    next_id: int = 0
    """Least id for the next vector added without one: ids of deleted vectors stay unused."""
    report: Mapping[str, Any] | None = None
    """What the build of the index reported, as plain values; None if it has none."""
    living: Living | None = None
    """The buffers that additions and deletions change in place; None if all arrays are constant."""
    names: Labels = field(default_factory=new_names)
    """Names of ids, changed in place: all states of an index share them."""

    def __post_init__(self) -> None:
        if self.labels is not None and self.living is None:
            check_labels(self.labels, self.graph.n_vertices)

    @classmethod
    def of(
        cls,
        base: BaseVectors,
        graph: Graph,
        spaces: Sequence[RoutingSpace] = (),
        labels: NDArray[np.int64] | None = None,
        validation: Validation | None = None,
        settings: Sequence[Setting] = (),
        losses: Sequence[Loss] = (),
    ) -> IndexState:
        """Make a searcher for the original space and for each of `spaces`."""
        all_spaces = [original_space(base), *spaces]
        searchers = {space.name: Searcher(graph, space, base) for space in all_spaces}
        if len(searchers) != len(all_spaces):
            names = [space.name for space in all_spaces]
            raise ValueError(f"expected spaces with distinct names, got {names}")
        return cls(
            base,
            graph,
            searchers,
            labels,
            validation,
            {setting.key: setting for setting in settings},
            {loss.space: loss for loss in losses},
        )

    @property
    def spaces(self) -> tuple[RoutingSpace, ...]:
        """Routing spaces: the original one first, the default one last."""
        return tuple(searcher.space for searcher in self.searchers.values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays, by the names under which they are saved."""
        arrays = {
            "vectors": self.base.rows,
            "neighbors": self.graph.neighbors,
            "entries": self.graph.entries,
            **arrays_of_table(self.graph.table),
        }
        if self.labels is not None:
            arrays["labels"] = self.labels
        for i, layer in enumerate(self.graph.upper):
            arrays |= {f"layer{i}_vertices": layer.vertices, f"layer{i}_neighbors": layer.neighbors}
        for i, space in enumerate(self.spaces[1:]):
            arrays |= arrays_of_space(i, space)
        if self.validation is not None:
            arrays["validation_queries"] = self.validation.queries
            arrays["validation_neighbors"] = self.validation.neighbors
        return arrays

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays in memory, inlined copies of routing vectors included."""
        copies = sum(searcher.n_inlined_bytes for searcher in self.searchers.values())
        return copies + sum(array.nbytes for array in self.arrays().values())

    def searcher(self, space: str | None = None) -> Searcher:
        """The searcher of a space; by default that of the last space."""
        if space is None:
            return next(reversed(self.searchers.values()))
        if space not in self.searchers:
            raise ValueError(f"expected a space of {', '.join(self.searchers)}, got {space!r}")
        return self.searchers[space]

    @property
    def n_slots(self) -> int:
        """Number of rows; those of a living index are slots, in use or not."""
        return self.graph.n_vertices

    @property
    def n_vectors(self) -> int:
        """Number of vectors."""
        return self.n_slots if self.living is None else len(self.living)

    @property
    def version(self) -> int:
        """Number of changes in place so far."""
        return 0 if self.living is None else self.living.counts.version

    @property
    def is_living(self) -> bool:
        """Whether the arrays may be changed in place."""
        return self.living is not None

    def reading(self) -> AbstractContextManager[object]:
        """While this exists and is not closed, slots that are seen keep their vectors."""
        return nullcontext() if self.living is None else _core.Reading(self.living.store)

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the vectors, in the order of their rows [n]; a copy."""
        if self.living is not None:
            return self.living.ids()
        if self.labels is not None:
            return self.labels.copy()
        return np.arange(self.n_slots, dtype=np.int64)

    def added_since(self, version: int) -> NDArray[np.int64] | None:
        """Ids added since a version; None if there were other changes, or if it is not known."""
        return None if self.living is None else self.living.added_since(version)

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """Whether each slot holds a vector [n_slots]."""
        if self.living is not None:
            return np.asarray(self.living.store.labels() != -1)
        return np.ones(self.n_slots, dtype=np.bool_)

    def slots_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers of the vectors with these ids [n]; −1 for ids that there are not."""
        if self.living is not None:
            return self.living.store.slots_of(ids).astype(np.int64)
        return slots_by_label(self.labels, self.n_slots, ids)

    def rivals(self, dim: int | None) -> list[RoutingSpace]:
        """Spaces that a learned space must beat, beside the plain space of its dimension.

        Args:
            dim: dimension of the learned space; None for that of the vectors.
        """
        is_short = dim is not None and dim != self.base.dim
        original, default = self.spaces[0], self.spaces[-1]
        return [original] * is_short + [default] * (default is not original)

    def rows_of(self, ids: object) -> NDArray[np.int64]:
        """Row numbers of the vertices with these ids in answers, of any shape; −1 stays −1."""
        wanted = as_array("ids", ids)
        if wanted.dtype.kind not in "iu" and wanted.size:
            raise ValueError(f"expected integer ids, got dtype {wanted.dtype}")
        rows = slots_by_label(self.labels, self.n_slots, wanted).astype(np.int64, copy=False)
        unknown = (wanted != -1) & (rows == -1)
        if unknown.any():
            raise ValueError(f"expected ids of the index, got {wanted[unknown][0]}")
        return rows

    def with_spaces(self, base: BaseVectors, spaces: Sequence[RoutingSpace]) -> IndexState:
        """Replace vectors and spaces; settings and losses of spaces that change are dropped."""
        original = self.spaces[0] if base is self.base else original_space(base)
        known = {id(each.space): each for each in self.searchers.values() if each.base is base}
        searchers = {
            space.name: known.get(id(space)) or Searcher(self.graph, space, base)
            for space in (original, *spaces)
        }
        kept = {name for name, each in searchers.items() if id(each.space) in known}
        return replace(
            self,
            base=base,
            searchers=searchers,
            settings={key: each for key, each in self.settings.items() if key[0] in kept},
            rules={key: rule for key, rule in self.rules.items() if key[0] in kept},
            losses={name: loss for name, loss in self.losses.items() if name in kept},
            drifts={name: drift for name, drift in self.drifts.items() if name in kept},
        )

    def with_measured(self, other: IndexState) -> IndexState:
        """Add the settings that were measured on an index of the same structure."""
        return replace(self, settings={**other.settings, **self.settings})

    def rule_of(self, setting: Setting) -> _core.StopRule | None:
        """The learned rule by which a setting ends walks without a filter, if there is one."""
        rule = self.rules.get((setting.space, setting.k))
        if rule is None:
            return None
        return rule.core_of(setting.threshold, setting.power, setting.first_level)

    def with_settings_of(self, other: IndexState, before: IndexState) -> IndexState:
        """Add the settings that `other` has, `before` has not, and that are valid for this state.

        A setting is valid if this state has the searcher and the validation queries with which it
        was measured.
        """
        new = {
            key: setting
            for key, setting in other.settings.items()
            if key not in before.settings
            and self.validation is other.validation
            and self.searchers.get(key[0]) is other.searchers[key[0]]
        }
        return replace(self, settings={**self.settings, **new}) if new else self


def check_labels(
    labels: NDArray[np.int64], n_vertices: int, *, may_be_missing: bool = False
) -> None:
    """Refuse labels that are not int64 [n_vertices], distinct and other than −1.

    Args:
        labels: the labels.
        n_vertices: number of vertices.
        may_be_missing: whether labels may be −1.
    """
    if labels.shape != (n_vertices,) or labels.dtype != np.int64:
        got = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"expected labels int64 [{n_vertices}], got {got}")
    ordered = np.sort(labels[labels != -1] if may_be_missing else labels)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        vertices = np.flatnonzero(labels == repeated[0])[:2].tolist()
        got = f"{repeated[0]} for vertices {vertices[0]} and {vertices[1]}"
        raise ValueError(f"expected distinct labels, got {got}")
    missing = np.flatnonzero(labels == -1)
    if len(missing) and not may_be_missing:
        raise ValueError(
            f"expected labels other than -1 (no answer), got -1 for vertex {missing[0]}"
        )
