"""Changes of an index: functions from a state to a new state. The old state is left as it is."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.rewiring.refine import refine_graph
from l2route.rewiring.renumber import (
    breadth_first_order,
    numbers_in,
    renumber_base,
    renumber_graph,
    renumber_space,
)
from l2route.search.codes import Compression, compress_space, to_float16
from l2route.search.drift import measure_drift, with_gain
from l2route.search.rows import check_inlined
from l2route.search.searcher import Searcher, check_queries
from l2route.search.setting import Loss
from l2route.search.space import LEARNED, RoutingSpace
from l2route.search.stopping import learn_rule
from l2route.search.validation import Validation
from l2route.state.names import moved
from l2route.state.state import IndexState


def relabelled(state: IndexState, labels: NDArray[np.int64]) -> IndexState:
    """Give the vectors other ids; their names go with them: `RoutingIndex.relabel`."""
    after = replace(state, labels=labels)
    return replace(after, names=moved(state.names, state.ids, labels))


def validated(state: IndexState, validation: Validation) -> IndexState:
    """Replace the validation queries and drop all settings, which were measured on others."""
    return replace(state, validation=validation, settings={}, drifts={})


def with_drifts(state: IndexState) -> IndexState:
    """Measure the drift of all spaces on the validation queries, for `info` to report."""
    if state.validation is None:
        raise ValueError(
            "expected validation queries to measure drift on, got none: "
            "call learn or validate_with first"
        )
    drifts = measure_drift(state.graph, state.base, state.spaces, state.validation)
    return replace(state, drifts={drift.space: drift for drift in drifts})


def learned(state: IndexState, space: RoutingSpace | None, validation: Validation) -> IndexState:
    """Add a learned space in place of earlier learned ones.

    Args:
        state: the state that was learned on.
        space: the learned space; None if it is not better than the present ones.
        validation: queries held out from training. They replace those of the state if there is a
            new space or if the state has none.
    """
    after = state
    if space is not None or state.validation is None:
        after = validated(state, validation)
    if space is None:
        return after
    others = [other for other in after.spaces[1:] if not other.name.startswith(LEARNED)]
    return after.with_spaces(after.base, [*others, space])


def compressed(
    state: IndexState,
    routing: Compression | None,
    vectors: Literal["float16"] | None,
    space: str | None,
    inlined: bool,
) -> IndexState:
    """Store routing vectors, original vectors or both in fewer bytes: `RoutingIndex.compress`."""
    if vectors not in (None, "float16"):
        raise ValueError(f"expected vectors float16 or None, got {vectors!r}")
    if inlined and routing is None:
        raise ValueError("expected routing int2, int4, int8 or float16 to be inlined, got None")
    if inlined:
        check_inlined(state.graph)
    source = state.searcher(space)
    base = state.base if vectors is None else to_float16(state.base)
    if routing is None:
        after = state.with_spaces(base, state.spaces[1:])
        return after if vectors is None else _with_loss(after, source, source.space.name)
    smaller = replace(compress_space(source.space, routing), inlined=inlined)
    if state.validation is not None:
        smaller = with_gain(smaller, state.graph, base, state.validation)
    replaced = (source.space.name, smaller.name)
    kept = [other for other in state.spaces[1:] if other.name not in replaced]
    return _with_loss(state.with_spaces(base, [*kept, smaller]), source, smaller.name)


def _with_loss(state: IndexState, before: Searcher, space: str) -> IndexState:
    """Measure the loss of a compressed space, if there are validation queries."""
    if state.validation is None:
        return state
    loss = Loss.of(before, state.searcher(space), state.validation)
    return replace(state, losses={**state.losses, space: loss})


def refined(
    state: IndexState,
    degree: int | None,
    n_candidates: int,
    alpha: float,
    n_threads: int,
    progress: Progress | None,
) -> IndexState:
    """Choose new neighbours for every vertex: `RoutingIndex.refine`."""
    check_unlearned(state)
    graph = refine_graph(
        state.graph,
        state.base,
        degree=degree,
        n_candidates=n_candidates,
        alpha=alpha,
        n_threads=n_threads,
        progress=progress,
    )
    return with_graph(state, graph)


def check_unlearned(state: IndexState) -> None:
    """Refuse to change the graph of a learned space, which is valid for that graph only."""
    names = [space.name for space in state.spaces if space.name.startswith(LEARNED)]
    if names:
        got = f"an index with the learned space {names[0]}"
        raise ValueError(f"expected to refine before learning, got {got}")


def with_graph(state: IndexState, graph: Graph) -> IndexState:
    """Replace the graph; settings, losses and drifts are dropped."""
    searchers = {space.name: Searcher(graph, space, state.base) for space in state.spaces}
    return replace(
        state, graph=graph, searchers=searchers, settings={}, losses={}, drifts={}, rules={}
    )


def renumbered(state: IndexState) -> IndexState:
    """Renumber the vertices in breadth-first order: `RoutingIndex.renumber`.

    Answers keep their ids. Searches visit the same vertices, so settings and losses remain valid.
    """
    order = breadth_first_order(state.graph)
    base = renumber_base(state.base, order)
    spaces = [renumber_space(space, order, state.base, base) for space in state.spaces[1:]]
    validation = state.validation
    if validation is not None:
        validation = replace(validation, neighbors=numbers_in(order)[validation.neighbors])
    moved = replace(
        state,
        graph=renumber_graph(state.graph, order),
        labels=order.astype(np.int64) if state.labels is None else state.labels[order],
        validation=validation,
    ).with_spaces(base, spaces)
    return replace(moved, settings=state.settings, losses=state.losses, rules=state.rules)


def with_rule(
    state: IndexState, queries: object, k: int, space: str | None, seed: int, n_threads: int
) -> IndexState:
    """Learn when walks end, from queries beside those that validate.

    Settings of its space and k are dropped, so that they are measured again with the rule.
    """
    searcher = state.searcher(space)
    rows = check_queries(queries, state.base.dim)
    if state.validation is not None:
        rows = state.validation.others(rows, state.base.metric)
    rule = learn_rule(searcher, rows, k, seed=seed, n_threads=n_threads)
    without = without_rule(state, k, space)
    return replace(without, rules={**without.rules, rule.key: rule})


def without_rule(state: IndexState, k: int, space: str | None) -> IndexState:
    """Drop the learned rule of a space and k, if there is one, and all their settings."""
    dropped = (state.searcher(space).space.name, k)
    settings = {key: each for key, each in state.settings.items() if key[:2] != dropped}
    rules = {key: rule for key, rule in state.rules.items() if key != dropped}
    return replace(state, settings=settings, rules=rules)
