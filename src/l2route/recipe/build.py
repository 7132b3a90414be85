"""`l2route.build`: an index that is ready to serve, and a report of every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, check_lengths, check_vectors
from l2route.graph.build import DEGREE, GraphKind
from l2route.index import RoutingIndex
from l2route.recipe.builder import Builder
from l2route.recipe.report import BuildReport
from l2route.recipe.steps import Recipe, Routing, StepProgress, prepare
from l2route.state.changing import checked_ids
from l2route.training.log_split import checked_neighbors

if TYPE_CHECKING:  # serving never imports torch
    from l2route.training.log import Event


def build(
    vectors: object,
    queries: object = None,
    *,
    metric: Metric = "l2",
    k: int = 10,
    recall: float = 0.95,
    routing: Routing = "auto",
    minutes: float = 5.0,
    dim: int | None = None,
    graph: GraphKind = "l2route",
    degree: int = DEGREE,
    ef_construction: int | None = None,
    seed: int = 0,
    n_threads: int = 0,
    neighbors: object = None,
    ids: object = None,
    progress: StepProgress | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> tuple[RoutingIndex, BuildReport]:
    """Make an index that is ready to serve: `index.search(queries, k, recall=recall)`.

    The graph is built, and refined if faiss built it. It gets edges and entry points from the query
    log, if held-out queries are faster with them. Routing is learned from the log, vectors are
    renumbered and compressed, when walks end is learned too, and the cheapest setting that reaches
    the recall is found and kept. The learned space is kept only if it is better with a confidence
    of 99%. Compressed vectors are kept only if queries then reach the recall and read fewer bytes;
    otherwise larger element types are tried. Whatever is learned is kept only if validation queries
    take no longer with it. The report has the time, the memory and the search cost of each step,
    and is a picture too; the index keeps it.

    With fewer than 200 distinct queries nothing is learned: all of them are needed for measuring.
    Without queries nothing is learned either, and the setting is measured on up to 1,000 base
    vectors, held out of the graph. It holds for queries distributed like the vectors.

    Args:
        vectors: base vectors [n, dim], any real dtype.
        queries: query log [n_queries, dim]; it may contain repeated queries.
        metric: l2, ip or cosine.
        k: answers per query, at most 100 and at most n.
        recall: recall@k to reach.
        routing: element type of routing vectors: int2, int4, int8, float16 or float32, or auto for
            the codes by which validation queries are fastest, also of fewer dimensions fitted to
            the log. Unless it is float32, the original vectors are stored as float16.
        minutes: time limit of what is learned from the log; 0 to learn nothing. Half of it or more
            is for a routing space.
        dim: dimension of learned routing vectors; the original one if not given.
        graph: l2route (the project's own), nsw, hnsw, nsg, knn or approximate-knn.
        degree: largest number of neighbours of a vertex.
        ef_construction: beam width while building l2route (by default as the data need), nsw and
                hnsw (300).
        seed: seed of every random choice.
        n_threads: threads; 0 for all cores. Graphs of other kinds than l2route and knn, built by
            more than one, differ from run to run.
        neighbors: true neighbours of the queries, row numbers [n_queries, at least k], nearest
            first; found by an exact search if not given.
        ids: ids of the vectors [n], distinct int64 other than −1; row numbers by default.
        progress: called with the step, the amount done and the total amount.
        on_event: called after every validation of learning.
    """
    recipe = Recipe(
        metric=metric,
        k=k,
        recall=recall,
        routing=routing,
        minutes=minutes,
        dim=dim,
        graph=graph,
        degree=degree,
        ef_construction=ef_construction,
        seed=seed,
        n_threads=n_threads,
    )
    return follow(
        recipe, vectors, queries, neighbors=neighbors, ids=ids, progress=progress, on_event=on_event
    )


def follow(
    recipe: Recipe,
    vectors: object,
    queries: object = None,
    *,
    neighbors: object = None,
    ids: object = None,
    progress: StepProgress | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> tuple[RoutingIndex, BuildReport]:
    """Make an index by a recipe.

    Args:
        recipe: options of the build.
        vectors: base vectors [n, dim], any real dtype.
        queries: query log [n_queries, dim]; may be None.
        neighbors: as in `build`.
        ids: as in `build`.
        progress: as in `build`.
        on_event: as in `build`.
    """
    base = check_vectors("vectors", vectors)
    n = len(base)
    if recipe.k > n:
        raise ValueError(f"expected k of at most {n}, the number of vectors, got {recipe.k}")
    if recipe.dim is not None and not 1 <= recipe.dim <= base.shape[1]:
        raise ValueError(f"expected dim in [1, {base.shape[1]}], got {recipe.dim}")
    labels = None if ids is None else checked_ids(ids, n)
    log = None if queries is None else _checked_log(queries, base.shape[1], recipe.metric)
    known = None
    if log is not None and neighbors is not None:
        known = checked_neighbors(neighbors, len(log), recipe.k, n)
    builder = Builder(recipe, log, known, progress, on_event)
    index = prepare(
        base,
        recipe,
        log=builder.refine_for_log,
        learn=builder.learn,
        compress=builder.compress,
        stop=builder.stop,
        watch=builder.watch,
        progress=progress,
    )
    report = builder.report(index)
    index.keep_build_record(report.record())
    if labels is not None:
        rows = index.labels  # renumbered
        index.relabel(labels if rows is None else labels[rows])
    return index, report


def _checked_log(queries: object, dim: int, metric: Metric) -> NDArray[np.float32]:
    """The query log [n_queries, dim], whose distances are finite."""
    log = check_vectors("queries", queries, dim)
    if metric != "cosine":
        check_lengths("queries", log)
    return log
