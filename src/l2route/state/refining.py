"""Refining: better neighbours for the vertices of an index, by its vectors or by a query log."""

from l2route.files.progress import Progress
from l2route.rewiring.refine import ALPHA, N_CANDIDATES
from l2route.search.validation import warn_of_doubts
from l2route.state import changes
from l2route.state.current import Current
from l2route.state.log_refining import LogRefiner, LogReport
from l2route.state.state import IndexState


class Refining:
    """The ways to change the graph of an index as a whole."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def refine(
        self,
        *,
        degree: int | None = None,
        n_candidates: int = N_CANDIDATES,
        alpha: float = ALPHA,
        queries: object = None,
        k: int = 10,
        recall: float = 0.95,
        neighbors: object = None,
        seed: int = 0,
        n_threads: int = 0,
        progress: Progress | None = None,
    ) -> LogReport | None:
        """Change the graph so that searches need fewer distances. Refine before learning.

        Without queries, every vertex gets new neighbours. Candidates are the vertices that a search
        finds nearest, and the present neighbours; see `l2route.rewiring.refine`.

        With queries, neighbours stay and others are added: edges by which the true neighbours of
        every query, and of others between them, reach each other, and entry points that depend on
        the query. Either is kept only if queries that are held out are then expected to take less
        time at the recall. They bring most where queries are of another kind than the vectors. The
        queries held out become the validation queries of the index, as after `learn`; if neither is
        kept and the index has more of its own, those stay.

        A learned space is valid for one graph only, so an index with one is refused. Settings and
        losses are dropped.

        Args:
            degree: maximum number of neighbours, at least 2; by default as now, and with queries 8
                more, or 32 more where that is clearly faster.
            n_candidates: number of nearest vertices among the candidates; without queries only.
            alpha: drop candidate c of vertex v if a kept p has alpha·d²(p, c) < d²(v, c); at
                least 1, at which the fewest are kept. Without queries only.
            queries: query log [n_queries, dim]; it may contain repeated queries.
            k: answers per query that costs are measured for, with queries only.
            recall: recall@k that costs are measured at, with queries only.
            neighbors: true neighbours of the queries by the ids of answers [n_queries, *], nearest
                first; found by an exact search if not given.
            seed: seed of the choice of queries to hold out.
            n_threads: threads; 0 for all cores. The graph is the same for any number.
            progress: called with vertices or queries done and in total.

        Returns:
            What was kept and what it saves, with queries; otherwise None.
        """
        if queries is None:
            chosen = (degree, n_candidates, alpha, n_threads, progress)
            self._current.change(lambda state: changes.refined(state, *chosen))
            return None
        with self._current.changing() as before:
            changes.check_unlearned(before)
            refiner = LogRefiner(
                before.base,
                queries,
                k=k,
                recall=recall,
                neighbors=None if neighbors is None else before.rows_of(neighbors),
                seed=seed,
                n_threads=n_threads,
                progress=progress,
            )
            after = _refined_by(refiner, before, degree)
            if after.validation is refiner.split.validation:
                warn_of_doubts(after.validation, after.base, stacklevel=3)  # the caller of `refine`
            self._current.swap(before, after)
        return refiner.report()


def _refined_by(refiner: LogRefiner, state: IndexState, degree: int | None) -> IndexState:
    """The state with what pays of edges and entry points."""
    space = state.spaces[-1]
    graph = refiner.with_edges(state.graph, space, degree)
    after = changes.with_graph(state, refiner.with_entries(graph, space))
    known, held_out = state.validation, refiner.split.validation
    is_refined = any(step.is_kept for step in refiner.steps)
    if not is_refined and known is not None and len(known.queries) > len(held_out.queries):
        return after
    return changes.validated(after, held_out)
