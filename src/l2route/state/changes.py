"""What can be done to an index: functions from a state to another, which leave the first alone."""

from dataclasses import replace
from typing import Literal

import numpy as np

from l2route import _core
from l2route.files.progress import Progress
from l2route.graph.graph import numbers_in
from l2route.rewiring.refine import refine_graph
from l2route.search.codes import Compression, compress_space, to_float16
from l2route.search.layout import aligned_rows
from l2route.search.rows import check_inlined
from l2route.search.searcher import Searcher
from l2route.search.setting import Loss
from l2route.search.space import LEARNED, RoutingSpace
from l2route.search.validation import Validation
from l2route.state.state import State


def validated(state: State, validation: Validation) -> State:
    """Keep queries with their true neighbours; settings measured before are forgotten."""
    return replace(state, validation=validation, settings={})


def learned(state: State, space: RoutingSpace | None, validation: Validation) -> State:
    """Take in what was learned, in place of what was learned before.

    Args:
        state: what was learned on.
        space: the learned space; None if it is no better than what there is.
        validation: queries kept from training; kept with the space, or if there are none yet.
    """
    after = state
    if space is not None or state.validation is None:
        after = validated(state, validation)
    if space is None:
        return after
    others = [each for each in after.spaces[1:] if not each.name.startswith(LEARNED)]
    return after.with_spaces(after.base, [*others, space])


def compressed(
    state: State,
    routing: Compression | None,
    vectors: Literal["float16"] | None,
    space: str | None,
    inlined: bool,
) -> State:
    """Give routing vectors, original vectors or both fewer bytes; see `RoutingIndex.compress`."""
    if vectors not in (None, "float16"):
        raise ValueError(f"expected vectors float16 or None, got {vectors!r}")
    if inlined and routing is None:
        raise ValueError("expected routing int4, int8 or float16 to be inlined, got None")
    if inlined:
        check_inlined(state.graph)
    source = state.searcher(space)
    base = state.base if vectors is None else to_float16(state.base)
    if routing is None:
        after = state.with_spaces(base, state.spaces[1:])
        return after if vectors is None else _with_loss(after, source, source.space.name)
    made = replace(compress_space(source.space, routing), inlined=inlined)
    gone = (source.space.name, made.name)
    kept = [each for each in state.spaces[1:] if each.name not in gone]
    return _with_loss(state.with_spaces(base, [*kept, made]), source, made.name)


def _with_loss(state: State, before: Searcher, space: str) -> State:
    if state.validation is None:
        return state
    loss = Loss.of(before, state.searcher(space), state.validation)
    return replace(state, losses={**state.losses, space: loss})


def refined(
    state: State,
    degree: int | None,
    n_candidates: int,
    alpha: float,
    n_threads: int,
    progress: Progress | None,
) -> State:
    """Give every vertex better neighbours; see `RoutingIndex.refine`."""
    if any(space.name.startswith(LEARNED) for space in state.spaces):
        raise ValueError("expected to refine before learning, got an index that has learned")
    graph = refine_graph(
        state.graph,
        state.base,
        degree=degree,
        n_candidates=n_candidates,
        alpha=alpha,
        n_threads=n_threads,
        progress=progress,
    )
    searchers = {space.name: Searcher(graph, space, state.base) for space in state.spaces}
    return replace(state, graph=graph, searchers=searchers, settings={}, losses={})


def renumbered(state: State) -> State:
    """Give vertices that lie near each other in the graph numbers near each other."""
    order = _core.breadth_first_order(state.graph.core)
    base = replace(state.base, rows=aligned_rows(state.base.rows, order))
    spaces = [
        replace(
            space,
            rows=base.rows if space.rows is state.base.rows else aligned_rows(space.rows, order),
            bias=None if space.bias is None else space.bias[order],
        )
        for space in state.spaces[1:]
    ]
    validation = state.validation
    if validation is not None:
        validation = replace(validation, neighbors=numbers_in(order)[validation.neighbors])
    labels = order.astype(np.int64) if state.labels is None else state.labels[order]
    moved = replace(
        state, graph=state.graph.renumbered(order), labels=labels, validation=validation
    )
    after = moved.with_spaces(base, spaces)
    # Walks are as long as they were: what was measured holds.
    return replace(after, settings=state.settings, losses=state.losses)
