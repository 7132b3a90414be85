"""The state of a new index: a graph built over vectors, in which every vertex is reachable."""

from l2route.data.vectors import check_metric
from l2route.files.progress import Progress
from l2route.graph.build import GraphOptions, build_graph
from l2route.graph.graph import Graph
from l2route.rewiring.connect import connect_graph
from l2route.rewiring.grow import grow_graph
from l2route.rewiring.refine import refine_graph
from l2route.search.base import BaseVectors
from l2route.search.space import pca_space
from l2route.state.changing import checked_ids
from l2route.state.state import IndexState


def build_state(
    vectors: object,
    metric: str,
    options: GraphOptions,
    pca_dim: int | None,
    refines: bool,
    ids: object,
    progress: Progress | None,
) -> IndexState:
    """Build a graph over vectors [n, dim]: `RoutingIndex.build`.

    Args:
        vectors: base vectors.
        metric: l2, ip or cosine.
        options: the graph to build.
        pca_dim: build on, and route by, that many principal components; None for the vectors.
        refines: whether to refine the graph; otherwise only unreachable vertices are connected.
        ids: ids of the vectors [n]; None for row numbers.
        progress: called while the graph is built, and again while it is refined.
    """
    base = BaseVectors.of(vectors, check_metric(metric))
    labels = None if ids is None else checked_ids(ids, len(base.rows))
    space = None if pca_dim is None else pca_space(base, pca_dim)
    built_on = base if space is None else BaseVectors(space.rows, space.dim, space.scorer)
    graph = graph_over(built_on, options, progress)
    if refines:
        graph = refine_graph(graph, built_on, n_threads=options.threads, progress=progress)
    else:
        graph = connect_graph(graph, built_on, options.threads)
    return IndexState.of(base, graph, [] if space is None else [space], labels)


def graph_over(base: BaseVectors, options: GraphOptions, progress: Progress | None = None) -> Graph:
    """A graph of any kind over base vectors."""
    if options.kind == "l2route":
        return grow_graph(base, options, progress)
    return build_graph(base.vectors(), base.metric, options, progress)
