"""Answers to what the web page asks."""

from __future__ import annotations

import re
import time
from itertools import islice
from math import isfinite
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.explain.explanation import Explanation
from l2route.index import RoutingIndex
from l2route.search.limits import Limits, default_budget
from l2route.search.setting import Setting
from l2route.serve.served import Served

Vector = NDArray[np.floating[Any]]
MAX_BUDGET = 20_000
"""Largest budget that the page may ask for: each visit is drawn."""
N_SUGGESTED = 8
"""Labels that are suggested for a text."""
N_EXAMPLES = 6
"""Examples that the page offers."""
N_LOOKED = 20_000
"""First labels among which examples are chosen."""
N_ALIKE = 100
"""Vectors with the same label that are told apart."""
EXAMPLE = re.compile(r"[^\W\d_]{5,10}")
"""Labels that make good examples, if there are any: words."""
N_CURVE = 500
"""Validation queries that curves are measured on."""
MAX_AGE = 600.0
"""Seconds after which a curve of an index that changes is measured again."""
ID = re.compile(r"#?\s*(-?\d{1,19})")


def about(served: Served) -> dict[str, Any]:
    """What the page says of an index, and what it offers."""
    index, labels = served.index, served.labels
    return {
        "n_vectors": len(index),
        "dim": index.dim,
        "metric": index.searcher().base.metric,
        "spaces": index.space_names,
        "n_labels": 0 if labels is None else len(labels),
        "limits": _limits(index),
        "examples": _examples(index, labels),
    }


def _limits(index: RoutingIndex) -> list[dict[str, Any]]:
    """Limits to choose from: budgets, and those that reach a recall, if they were measured.

    The default is the budget whose gain the space keeps: of several that it was learned for, the
    middle one. Nothing is measured for the page, which may take minutes.
    """
    space = index.searcher().space
    rerank = 0 if space.is_exact else space.rerank
    least = rerank + space.n_projection + 1
    usual = default_budget(rerank, space.n_projection)
    if space.gain is not None:
        usual = max(least, space.gain.budget)
    budgets = [round(usual * share) for share in (0.5, 1, 2, 4, 8)]
    offered: list[dict[str, Any]] = [
        {"text": f"{each:,} distances", "budget": each, "is_default": each == usual}
        for each in budgets
        if least <= each <= MAX_BUDGET
    ]
    wanted = (space.name, 1.0, "mean")
    measured = [
        each for each in index.settings if (each.space, each.share, each.guarantee) == wanted
    ]
    return offered + [_as_choice(each) for each in measured]


def _as_choice(setting: Setting) -> dict[str, Any]:
    """The limits of a setting, by the recall that it was chosen for."""
    given = setting.limits._asdict()
    limits = {name: value for name, value in given.items() if value is not None}
    if not setting.rerank:
        del limits["rerank"]
    return {"text": f"recall@{setting.k} of {setting.target:g}", **limits}


def _examples(index: RoutingIndex, labels: Labels | None) -> list[dict[str, str]]:
    """Some labels to try, words if there are any; ids if there are no labels."""
    if labels is None or not len(labels):
        ids = index.ids
        picked = ids[:: -(-len(ids) // N_EXAMPLES)] if len(ids) else ids
        return [{"id": str(id_), "name": str(id_)} for id_ in picked.tolist()]
    first = {name: id_ for id_, name in islice(labels, N_LOOKED)}  # each name once
    words = [name for name in first if EXAMPLE.fullmatch(name)]
    names = words if len(words) >= N_EXAMPLES else list(first)
    spread = names[:: max(1, len(names) // N_EXAMPLES)]
    there = (name for name in spread if first[name] in index)
    return [{"id": str(first[name]), "name": name} for name in islice(there, N_EXAMPLES)]


def suggested(served: Served, text: str) -> list[dict[str, str]]:
    """Labels that contain a text, of vectors that the index has; and the id, if it is one."""
    index, labels, typed = served.index, served.labels, text.strip()
    found: list[dict[str, str]] = []
    if labels is not None and typed:
        pairs = labels.search(typed, 2 * N_SUGGESTED)
        found = [{"id": str(id_), "name": name} for id_, name in pairs if id_ in index]
    wanted = ID.fullmatch(typed)
    if wanted and int(wanted[1]) in index:
        found.append({"id": wanted[1], "name": _name(labels, int(wanted[1]))})
    return found[:N_SUGGESTED]


def _name(labels: Labels | None, id_: int) -> str:
    name = None if labels is None else labels.names([id_])[0]
    return name or f"#{id_}"


def explained(
    served: Served, text: str, id_: int | None, k: int, limits: Limits
) -> tuple[str, Explanation]:
    """Explain the search for a text: a label, an id or a vector.

    Args:
        served: the index.
        text: what was typed.
        id_: the id that was chosen, in place of the text.
        k: answers.
        limits: limits of each walk.

    Returns:
        What was searched for, and the explanation, with labels as names.
    """
    index, labels = served.index, served.labels
    name, query = _read(index, labels, text.strip(), id_)
    budget, ef, slack, rerank = limits
    found = index.explain(query, k, budget=budget, ef=ef, slack=slack, rerank=rerank)
    return name, found if labels is None else found.named(labels.names)


def _read(
    index: RoutingIndex, labels: Labels | None, text: str, id_: int | None
) -> tuple[str, Vector]:
    """The name of a query and its vector; a label that looks like an id or a vector comes first."""
    if id_ is not None:
        return _name(labels, id_), index.vectors([id_])[0]
    if labels is not None and text in labels:
        ids = [found for found, name in labels.search(text, N_ALIKE) if name == text]
        known = [found for found in ids if found in index]
        if len(known) > 1:
            raise ValueError(f"{len(known)} vectors are labelled {text!r}: choose one by its id.")
        if known:
            return text, index.vectors(known)[0]
    if (wanted := ID.fullmatch(text)) and int(wanted[1]) in index:
        return _name(labels, int(wanted[1])), index.vectors([int(wanted[1])])[0]
    if (values := _numbers(text)) is not None and not (wanted and index.dim > 1):
        return _named_vector(values, index.dim)
    if wanted:
        raise ValueError(f"Expected an id of the index, got {text}.")
    expected = "an id or a vector" if labels is None else "a label, an id or a vector"
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    raise ValueError(f"Expected {expected}, got {shown!r}.")


def _numbers(text: str) -> list[float] | None:
    """The numbers that a text lists, with commas, semicolons or blanks between; None if others."""
    parts = re.split(r"[,;\s]+", text.replace("−", "-").strip("[](),; \t\r\n"))
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    return values if all(map(isfinite, values)) else None


def _named_vector(values: list[float], dim: int) -> tuple[str, Vector]:
    if len(values) != dim:
        raise ValueError(f"Expected a vector of {dim} numbers, got {len(values)}.")
    shown = ", ".join(f"{value:.3g}" for value in values[:3])
    more = f", … ({len(values)} numbers)" if len(values) > 3 else ""
    return shown + more, np.array(values)


class Curves:
    """Recall against cost of the index that is served, measured once for each k.

    Args:
        served: the index.
    """

    def __init__(self, served: Served) -> None:
        self._served, self._lock = served, Lock()
        self._known: dict[int, tuple[RoutingIndex, int, float, dict[str, Any]]] = {}

    def of(self, k: int) -> dict[str, Any]:
        """The curves of the plain space and of the default one, or the reason for none."""
        index = self._served.index
        with self._lock:  # one measures, others wait for it
            known = self._known.get(k)
            if known is not None and known[0] is index and not _is_old(known, index):
                return known[3]
            measured = _measured(index, k)
            self._known[k] = (index, len(index), time.monotonic(), measured)
            return measured


def _is_old(known: tuple[RoutingIndex, int, float, dict[str, Any]], index: RoutingIndex) -> bool:
    """Whether a curve was measured before vectors changed, as far as their number tells."""
    _, n_vectors, measured_at, _ = known
    return n_vectors != len(index) and time.monotonic() - measured_at > MAX_AGE


def _measured(index: RoutingIndex, k: int) -> dict[str, Any]:
    try:
        curves = [
            index.recall_curve(k, space=name, n_queries=N_CURVE)
            for name in dict.fromkeys([index.space_names[0], index.space_names[-1]])
        ]
    except ValueError as error:
        return {"curves": [], "reason": f"It cannot be measured: {error}."}
    return {"curves": [curve.to_dict() for curve in curves], "reason": None}
