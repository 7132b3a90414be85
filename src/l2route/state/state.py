"""All that an index is, frozen, and the one reference by which searches see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from threading import Lock, get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.graph.report import report
from l2route.search.base import BaseVectors
from l2route.search.searcher import Searcher
from l2route.search.setting import Loss, Setting
from l2route.search.space import RoutingSpace, original_space
from l2route.search.validation import Validation
from l2route.state.parts import Parts, described

SettingKey = tuple[str, int, float]
"""Space, k and recall that a setting is for."""


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class State:
    """An index at one moment. What it holds is never changed: a change makes another state."""

    base: BaseVectors
    graph: Graph
    searchers: dict[str, Searcher]
    """By the names of their spaces: the original one first, the one that searches use last."""
    labels: NDArray[np.int64] | None = None
    """What answers call each vertex [n]; row numbers if not given."""
    validation: Validation | None = None
    """Queries that settings are measured on."""
    settings: Mapping[SettingKey, Setting] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    """By the names of spaces."""

    def __post_init__(self) -> None:
        n, labels = self.graph.n_vertices, self.labels
        if labels is not None and (labels.shape != (n,) or labels.dtype != np.int64):
            got = f"{list(labels.shape)} of {labels.dtype}"
            raise ValueError(f"expected labels [{n}], got {got}")

    @classmethod
    def of(cls, parts: Parts) -> State:
        """Make searchers for what was read or given."""
        every = [original_space(parts.base), *parts.spaces]
        searchers = {space.name: Searcher(parts.graph, space, parts.base) for space in every}
        if len(searchers) != len(every):
            raise ValueError(f"expected distinct spaces, got {[space.name for space in every]}")
        return cls(
            parts.base,
            parts.graph,
            searchers,
            parts.labels,
            parts.validation,
            {(each.space, each.k, each.target): each for each in parts.settings},
            {each.space: each for each in parts.losses},
        )

    @property
    def parts(self) -> Parts:
        """What is kept of it."""
        return Parts(
            base=self.base,
            graph=self.graph,
            spaces=self.spaces[1:],
            labels=self.labels,
            validation=self.validation,
            settings=tuple(self.settings.values()),
            losses=tuple(self.losses.values()),
        )

    @property
    def spaces(self) -> tuple[RoutingSpace, ...]:
        """Routing spaces; the last is the one that searches use."""
        return tuple(searcher.space for searcher in self.searchers.values())

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays in memory."""
        copies = sum(searcher.n_inlined_bytes for searcher in self.searchers.values())
        return copies + sum(array.nbytes for array in self.parts.arrays().values())

    def searcher(self, space: str | None = None) -> Searcher:
        """The searcher of a space; by default of the last one."""
        if space is None:
            return next(reversed(self.searchers.values()))
        if space not in self.searchers:
            raise ValueError(f"expected a space of {', '.join(self.searchers)}, got {space!r}")
        return self.searchers[space]

    def rivals(self, dim: int | None) -> list[RoutingSpace]:
        """What a learned space of a dimension has to beat, beside the plain one, to be used."""
        is_short = dim is not None and dim != self.base.dim
        original, used = self.spaces[0], self.spaces[-1]
        return [original] * is_short + [used] * (used is not original)

    def rows_of(self, ids: object) -> NDArray[np.int64]:
        """Row numbers of the vertices that answers call by these ids, of any shape; −1 stays."""
        called = np.asarray(ids)
        if called.dtype.kind not in "iu":
            raise ValueError(f"expected integer ids, got dtype {called.dtype}")
        labels = np.arange(self.graph.n_vertices) if self.labels is None else self.labels
        order = np.argsort(labels, kind="stable")
        places = np.searchsorted(labels, called, sorter=order)
        rows = np.where(called == -1, -1, order[np.minimum(places, len(order) - 1)])
        unknown = (called != -1) & (labels[rows] != called)
        if unknown.any():
            raise ValueError(f"expected ids that the index knows, got {called[unknown][0]}")
        return rows

    def info(self) -> dict[str, Any]:
        """What the index is, in plain values."""
        n = self.graph.n_vertices
        return {
            "n_vertices": n,
            "dim": self.base.dim,
            "metric": self.base.metric,
            "vectors": str(self.base.rows.dtype),
            "graph": asdict(report(self.graph)),
            "spaces": [described(space) for space in self.spaces],
            "labelled": self.labels is not None,
            "n_validation": 0 if self.validation is None else len(self.validation.queries),
            "settings": [asdict(setting) for setting in self.settings.values()],
            "losses": [asdict(loss) for loss in self.losses.values()],
            "bytes_per_vector": self.n_bytes / n,
        }

    def with_spaces(self, base: BaseVectors, spaces: Sequence[RoutingSpace]) -> State:
        """Other vectors, other spaces; what was measured of those that are gone is forgotten."""
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
            losses={name: loss for name, loss in self.losses.items() if name in kept},
        )

    def with_settings_of(self, other: State, before: State) -> State:
        """Take over settings that another state has and an earlier one had not, if they hold here.

        They do where the searcher and the queries that they were measured with are the same.
        """
        found = {
            key: setting
            for key, setting in other.settings.items()
            if key not in before.settings
            and self.validation is other.validation
            and self.searchers.get(key[0]) is other.searchers[key[0]]
        }
        return replace(self, settings={**self.settings, **found}) if found else self


class Current:
    """The state that an index is in: read at any time, and swapped whole.

    Whoever reads `state` once, and uses nothing else, sees an index that nobody changes.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._change, self._swap = Lock(), Lock()
        self._changer: int | None = None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let nobody else change the state, from reading it until it is swapped."""
        if self._changer == get_ident():
            raise RuntimeError("expected one change of an index at a time, got one within another")
        with self._change:
            self._changer = get_ident()
            try:
                yield
            finally:
                self._changer = None

    def swap(self, before: State, after: State) -> None:
        """Put a state in the place of the one that it was made of, which may have new settings."""
        with self._swap:
            self.state = after.with_settings_of(self.state, before)

    def add_setting(self, measured: State, setting: Setting) -> None:
        """Keep a setting, unless the index is no longer what it was measured on."""
        key = (setting.space, setting.k, setting.target)
        found = replace(measured, settings={**measured.settings, key: setting})
        with self._swap:
            self.state = self.state.with_settings_of(found, self.state)
