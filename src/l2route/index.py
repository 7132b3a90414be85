"""RoutingIndex: vectors, a graph over them and the spaces that route on it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from operator import index as index_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.calibration import Loss, Setting, Validation, calibrate, warn_of_doubts
from l2route.compression import Compression, compress_space, halve
from l2route.data import Progress, check_metric
from l2route.graph import (
    Entry,
    Graph,
    GraphKind,
    GraphOptions,
    build_graph,
    numbers_in,
    report,
)
from l2route.memory import aligned_rows
from l2route.parts import Parts, assemble, described, write_parts
from l2route.refinement import ALPHA, N_CANDIDATES, refine_graph
from l2route.search import Searcher, SearchResult
from l2route.spaces import (
    LEARNED,
    BaseVectors,
    Budget,
    RoutingSpace,
    original_space,
    pca_space,
)
from l2route.storage import read_index

if TYPE_CHECKING:  # serving never imports torch
    from l2route.models import RoutingModel
    from l2route.training.log import Event
    from l2route.training.options import ModelName, Objective
    from l2route.training.report import Report

DEFAULT_BUDGET = 256
"""Distance computations of a search that is told nothing else, and that learning is for."""
DEFAULT_RERANK = 8
"""True distances of those that learning is for, unless there are more neighbours to find."""


class RoutingIndex:
    """A similarity graph over vectors that answers queries; searching it is thread-safe.

    Args:
        base: the original vectors.
        graph: a graph over them.
        spaces: routing spaces beside the original one; the last is the one that searches use.
        labels: what answers call each vertex [n]; row numbers by default.
        validation: queries that settings are measured on.
    """

    def __init__(
        self,
        base: BaseVectors,
        graph: Graph,
        spaces: Sequence[RoutingSpace] = (),
        labels: NDArray[np.int64] | None = None,
        validation: Validation | None = None,
    ) -> None:
        if labels is not None and (labels.shape != (graph.n_vertices,) or labels.dtype != np.int64):
            got = f"{list(labels.shape)} of {labels.dtype}"
            raise ValueError(f"expected labels [{graph.n_vertices}], got {got}")
        self.base, self.graph, self.labels, self.validation = base, graph, labels, validation
        self._settings: dict[tuple[str, int, float], Setting] = {}
        self._losses: dict[str, Loss] = {}
        every = [original_space(base), *spaces]
        self._searchers = {space.name: Searcher(graph, space, base) for space in every}
        if len(self._searchers) != len(every):
            raise ValueError(f"expected distinct spaces, got {[space.name for space in every]}")

    @classmethod
    def build(
        cls,
        vectors: object,
        metric: str = "l2",
        graph: GraphKind = "nsw",
        degree: int = 16,
        ef_construction: int = 300,
        entry: Entry = "medoid",
        seed: int = 0,
        n_threads: int = 1,
        pca_dim: int | None = None,
        progress: Progress | None = None,
    ) -> "RoutingIndex":
        """Build a graph over vectors [n, dim].

        Args:
            vectors: base vectors, any real dtype.
            metric: l2, ip or cosine.
            graph: nsw, hnsw, nsg, knn or approximate-knn.
            degree: largest number of neighbours of a vertex.
            ef_construction: beam width while building nsw and hnsw.
            entry: where a search starts: a vertex id, several, "medoid", or "medoids" of 32
                clusters, which are scored first and bring a query near its answer.
            seed: seed of every random choice.
            n_threads: threads that build; more than one is faster and differs from run to run.
            pca_dim: build on, and route by, so many principal components (the paper's
                compressed baseline); answers are reranked by the original vectors.
            progress: called with vectors done and in all while nsw and hnsw grow.
        """
        options = GraphOptions(graph, degree, ef_construction, entry, seed, n_threads)
        base = BaseVectors.of(vectors, check_metric(metric))
        if pca_dim is None:
            return cls(base, build_graph(base.vectors(), base.metric, options, progress))
        space = pca_space(base, pca_dim)
        components = space.rows[:, :pca_dim]
        return cls(base, build_graph(components, space.scorer, options, progress), [space])

    @property
    def dim(self) -> int:
        """Dimension of the vectors and of queries."""
        return self.base.dim

    @property
    def spaces(self) -> tuple[RoutingSpace, ...]:
        """Routing spaces; the last is the one that searches use."""
        return tuple(searcher.space for searcher in self._searchers.values())

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays in memory; on disk there are no copies of neighbours' vectors."""
        copies = sum(searcher.n_inlined_bytes for searcher in self._searchers.values())
        return copies + sum(array.nbytes for array in self._parts().arrays().values())

    def __len__(self) -> int:
        return self.graph.n_vertices

    def search(
        self,
        queries: object,
        k: int = 10,
        budget: int | Budget | None = None,
        ef: int | None = None,
        rerank: int | None = None,
        space: str | None = None,
        n_threads: int = 0,
        trace: bool = False,
        slack: float | None = None,
        recall: float | None = None,
    ) -> SearchResult:
        """Find the k nearest of each query, within a budget, a beam width, a slack or several.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query; ids −1 and distances inf where fewer are found.
            budget: distance computations per query in units of the original dimension, rerank and
                projection included; never exceeded. Without any limit it is 256, or twice what
                rerank and projection take if that is more.
            ef: beam width, as in hnswlib and faiss.
            rerank: how many of the budget go to true distances at the end, in spaces whose scores
                are not true distances; by default what the space was made for, and at least k, or
                without a budget the whole beam, or with a slack 2k.
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited, by row number.
            slack: how much farther than the k-th best a vertex may be for the walk to go on from
                it, as a share: 0.1 is a tenth. Queries whose neighbourhood is crowded take longer,
                others are done sooner, than with one beam width for all.
            recall: in place of budget, ef, slack and rerank, a recall@k that is to be reached: see
                `setting`.
        """
        searcher = self.searcher(space)
        if recall is not None:
            if not budget is ef is slack is rerank is None:
                raise ValueError(
                    "expected a recall, or else budget, ef, slack and rerank, got both"
                )
            limits = self.setting(recall, k, space, n_threads).limits
            ef, slack, rerank = (limits[name] for name in ("ef", "slack", "rerank"))
        if not isinstance(budget, Budget) and (budget is not None or ef is slack is None):
            budget = self._budget(searcher, budget, k, rerank)
        result = searcher.search(queries, k, budget, ef, n_threads, trace, rerank, slack)
        if self.labels is not None:
            found = result.ids >= 0
            result.ids[found] = self.labels[result.ids[found]]
        return result

    def rows_of(self, ids: object) -> NDArray[np.int64]:
        """Row numbers of the vertices that answers call by these ids, of any shape; −1 stays."""
        called = np.asarray(ids)
        if called.dtype.kind not in "iu":
            raise ValueError(f"expected integer ids, got dtype {called.dtype}")
        labels = np.arange(len(self)) if self.labels is None else self.labels
        order = np.argsort(labels, kind="stable")
        places = np.searchsorted(labels, called, sorter=order)
        rows = np.where(called == -1, -1, order[np.minimum(places, len(order) - 1)])
        unknown = (called != -1) & (labels[rows] != called)
        if unknown.any():
            raise ValueError(f"expected ids that the index knows, got {called[unknown][0]}")
        return rows

    def searcher(self, space: str | None = None) -> Searcher:
        """The searcher of a space; by default of the last one."""
        if space is None:
            return next(reversed(self._searchers.values()))
        if space not in self._searchers:
            raise ValueError(f"expected a space of {', '.join(self._searchers)}, got {space!r}")
        return self._searchers[space]

    def _budget(self, searcher: Searcher, total: int | None, k: int, rerank: int | None) -> Budget:
        if not searcher.reranks:
            rerank = 0
        elif rerank is None:
            rerank = max(k, searcher.space.rerank)
        if total is None:
            total = max(DEFAULT_BUDGET, 2 * (rerank + searcher.space.n_projection))
        return searcher.space.budget(index_of(total), self.dim, rerank)

    def learn(
        self,
        queries: object,
        budget: int | None = None,
        rerank: int | None = None,
        dim: int | None = None,
        model: "ModelName | RoutingModel" = "filter",
        minutes: float = 5.0,
        seed: int = 0,
        *,
        k: int = 1,
        recall: float | None = None,
        neighbors: object = None,
        objective: "Objective" = "imitation",
        hidden_dim: int | None = None,
        steps: int | None = None,
        n_threads: int = 0,
        count_repeats: bool = False,
        memory_gb: float | None = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        on_event: "Callable[[Event], None] | None" = None,
    ) -> "Report":
        """Learn from a query log where to walk; searches use it from then on.

        Repeats in the log are found first, and validation queries are cut from what is distinct. On
        one half of them the best state is chosen, on the other half it has to be better, with a
        confidence of 99%, than the plain space of its dimension, than the original vectors and than
        what searches use now: at the budget, or at the recall, that is learned for. If it is not,
        or if there are too few queries to tell, the index stays as it is and the report says so.
        What is kept replaces what was learned before, compressed or not. Up to 2,000 validation
        queries are kept in the index, as by `validate_with`.

        Args:
            queries: training queries [n_queries, dim], of the kind that will be asked.
            budget: total distance computations per query to learn for; 256 if not given.
            rerank: how many of them are true distances at the end; 8 if not given, or k if more.
            dim: routing dimension; smaller than the original one, queries are projected.
            model: filter, gcn, ffn, or a model of one's own (see l2route.models.RoutingModel).
            minutes: time at the most, from the first line to the last: queries are left out whose
                true neighbours would take too long to find.
            seed: seed of every random choice.
            k: nearest neighbours that are to be found, at most `rerank`: what searches ask for.
            recall: recall@k to learn for, in place of budget and rerank, which are then those that
                reach it without learning, with a rerank of at least 2k. Better is what reaches it
                at less cost.
            neighbors: true neighbours of the queries, called as answers call them [n_queries, at
                least k], nearest first; found by an exact search if not given. Those of validation
                queries are found in any case.
            objective: imitation, teacher or topk.
            hidden_dim: hidden units of gcn and ffn (1024 if not given) or of the filter (none).
            steps: number of steps instead of minutes; such runs are reproducible to the last bit.
            n_threads: threads to use; 0 for all cores.
            count_repeats: learn from a query as often as it stands in the log; otherwise once.
            memory_gb: memory for hops to targets in 10⁹ bytes; if not given 6.4, or half of what is
                free if that is less. `l2route.training.footprint.expected_bytes` tells the peak.
            checkpoint: file that keeps the state of the run, and that a run goes on from.
            log: file that an event per validation is appended to, as JSON lines; TensorBoard's, if
                it is installed, go into a directory beside it, of the same name and `.tb`.
            cache: directory that keeps true neighbours and hops for the next run on the same graph
                and queries: half a byte per target and vertex, 5 GB for 100,000 of both.
            progress: called with queries done and in all while true neighbours are found.
            on_event: called after every validation.
        """
        try:
            from l2route.training.checkpoint import read_sizes
            from l2route.training.clock import Clock
            from l2route.training.loop import learn_space
            from l2route.training.options import LearnOptions
            from l2route.training.problem import pose
        except ImportError as error:
            raise ImportError('learning needs: pip install "l2route[train]"') from error
        own = None if isinstance(model, str) else model
        if recall is not None and not budget is rerank is None:
            raise ValueError("expected a recall, or else budget and rerank, got both")
        options = LearnOptions(
            budget=DEFAULT_BUDGET if budget is None else budget,
            rerank=max(DEFAULT_RERANK, k) if rerank is None else rerank,
            k=k,
            recall=recall,
            dim=dim,
            model=model if isinstance(model, str) else "filter",
            objective=objective,
            hidden_dim=hidden_dim,
            minutes=minutes,
            steps=steps,
            seed=seed,
            n_threads=n_threads,
            count_repeats=count_repeats,
            memory_gb=memory_gb,
        )
        clock = Clock(options.time_limit)
        state = None if checkpoint is None else Path(checkpoint)
        kept = None if cache is None else Path(cache)
        problem = pose(
            self.graph,
            self.base,
            queries,
            options,
            progress,
            kept,
            None if neighbors is None else self.rows_of(neighbors),
            clock,
            None if state is None or not state.exists() else read_sizes(state),
        )
        warn_of_doubts(problem.validation, self.base)
        space, report = learn_space(
            problem,
            options,
            model=own,
            rivals=self._rivals(options.dim),
            checkpoint=state,
            log=None if log is None else Path(log),
            cache=kept,
            on_event=on_event,
            clock=clock,
        )
        if report.is_better or self.validation is None:
            self._keep_validation(problem.to_keep())
        if report.is_better:
            others = [each for each in self.spaces[1:] if not each.name.startswith(LEARNED)]
            self._reset(self.base, [*others, space])
        return report

    def _rivals(self, dim: int | None) -> list[RoutingSpace]:
        """What a learned space has to beat to be used, beside the plain one of its dimension."""
        is_short = dim is not None and dim != self.dim
        original, used = self.spaces[0], self.searcher().space
        return [original] * is_short + [used] * (used is not original)

    def compress(
        self,
        routing: Compression | None = "int8",
        vectors: Literal["float16"] | None = None,
        space: str | None = None,
        inlined: bool = False,
    ) -> None:
        """Give routing vectors, original vectors or both fewer bytes.

        The compressed space takes the place of the one that it is made of, unless that is the
        original one, and searches use it from then on. What that costs in recall is measured on
        the validation queries, if there are some, and told by `info`.

        Args:
            routing: int4, int8 or float16 for routing vectors; None leaves them.
            vectors: float16 for the original vectors, by which answers are reranked: distances
                are then those of the rounded vectors. None leaves them.
            space: name of the space to compress; by default the last of `spaces`.
            inlined: keep copies of all neighbours' routing vectors with every vertex while the
                index is in memory, as NGT-QG and SymphonyQG do: `info` tells what that takes.
        """
        if vectors not in (None, "float16"):
            raise ValueError(f"expected vectors float16 or None, got {vectors!r}")
        source = self.searcher(space)
        base = self.base if vectors is None else halve(self.base)
        if routing is None:
            if inlined:
                raise ValueError("expected routing int4, int8 or float16 to be inlined, got None")
            self._reset(base, self.spaces[1:])
            if vectors is not None:
                self._measure_loss(source, self.searcher(source.space.name))
            return
        compressed = replace(compress_space(source.space, routing), inlined=inlined)
        gone = (source.space.name, compressed.name)
        kept = [each for each in self.spaces[1:] if each.name not in gone]
        self._reset(base, [*kept, compressed])
        self._measure_loss(source, self.searcher(compressed.name))

    def _measure_loss(self, before: Searcher, after: Searcher) -> None:
        if self.validation is not None:
            self._losses[after.space.name] = Loss.of(before, after, self.validation)

    def _reset(self, base: BaseVectors, spaces: Sequence[RoutingSpace]) -> None:
        """Other vectors, other spaces; what was measured of those that are gone is forgotten."""
        original = self.spaces[0] if base is self.base else original_space(base)
        known = {id(each.space): each for each in self._searchers.values() if each.base is base}
        every = {
            space.name: known.get(id(space)) or Searcher(self.graph, space, base)
            for space in (original, *spaces)
        }
        kept = {name for name, each in every.items() if id(each.space) in known}
        self.base, self._searchers = base, every
        self._settings = {key: value for key, value in self._settings.items() if key[0] in kept}
        self._losses = {name: loss for name, loss in self._losses.items() if name in kept}

    def refine(
        self,
        degree: int | None = None,
        n_candidates: int = N_CANDIDATES,
        alpha: float = ALPHA,
        n_threads: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Give every vertex better neighbours, so that walks find as much with fewer distances.

        They are chosen from what the graph finds nearest to it, and from those that it has: near,
        but not near each other. For metrics l2 and cosine, and before learning, which is for one
        graph. Settings and losses measured before are forgotten.

        Args:
            degree: largest number of neighbours; by default as it is.
            n_candidates: nearest vertices to choose from.
            alpha: a neighbour is left out if a nearer one is so many times nearer to it than the
                vertex is, in squared distances. At 1 the fewest are kept.
            n_threads: threads to use; 0 for all cores. The graph is the same for any number.
            progress: called with vertices done and in all while the nearest are sought.
        """
        if any(space.name.startswith(LEARNED) for space in self.spaces):
            raise ValueError("expected to refine before learning, got an index that has learned")
        graph = refine_graph(
            self.graph,
            self.base,
            degree=degree,
            n_candidates=n_candidates,
            alpha=alpha,
            n_threads=n_threads,
            progress=progress,
        )
        searchers = {space.name: Searcher(graph, space, self.base) for space in self.spaces}
        self.graph, self._searchers = graph, searchers
        self._settings, self._losses = {}, {}

    def renumber(self) -> None:
        """Give vertices that lie near each other in the graph numbers near each other.

        In the order of a breadth-first search, so that a walk finds more of what it needs in the
        caches. Answers are called as before, by labels where there were none.
        """
        order = _core.breadth_first_order(self.graph.neighbors, self.graph.entries)
        base = replace(self.base, rows=aligned_rows(self.base.rows, order))
        spaces = [
            replace(
                space,
                rows=base.rows if space.rows is self.base.rows else aligned_rows(space.rows, order),
                bias=None if space.bias is None else space.bias[order],
            )
            for space in self.spaces[1:]
        ]
        settings, losses = self._settings, self._losses
        self.labels = order.astype(np.int64) if self.labels is None else self.labels[order]
        self.graph = self.graph.renumbered(order)
        if self.validation is not None:
            neighbors = numbers_in(order)[self.validation.neighbors]
            self.validation = replace(self.validation, neighbors=neighbors)
        self._reset(base, spaces)
        self._settings, self._losses = settings, losses  # walks are as long as they were

    def validate_with(self, queries: object) -> None:
        """Keep the first 2,000 queries, with their true neighbours, to measure settings on.

        `learn` keeps some of its own. Settings measured before are forgotten.
        """
        validation = Validation.of(self.base, queries)
        warn_of_doubts(validation, self.base)
        self._keep_validation(validation)

    def _keep_validation(self, validation: Validation) -> None:
        self.validation = validation
        self._settings.clear()

    def setting(
        self, recall: float, k: int = 10, space: str | None = None, n_threads: int = 0
    ) -> Setting:
        """The beam width or slack, and the rerank, that reach a recall@k at the least cost.

        Measured once, on the validation queries; `save` keeps it.

        Args:
            recall: share of the true k nearest that is to be found.
            k: answers per query.
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to measure with; 0 for all cores.
        """
        searcher = self.searcher(space)
        k, recall = index_of(k), float(recall)
        key = (searcher.space.name, k, recall)
        if key not in self._settings:
            if self.validation is None:
                raise ValueError(
                    "expected validation queries to measure recall on: "
                    "call learn or validate_with first"
                )
            self._settings[key], _ = calibrate(searcher, self.validation, k, recall, n_threads)
        return self._settings[key]

    def info(self) -> dict[str, Any]:
        """What the index is, in plain values."""
        return {
            "n_vertices": len(self),
            "dim": self.dim,
            "metric": self.base.metric,
            "vectors": str(self.base.rows.dtype),
            "graph": asdict(report(self.graph)),
            "spaces": [described(space) for space in self.spaces],
            "labelled": self.labels is not None,
            "n_validation": 0 if self.validation is None else len(self.validation.queries),
            "settings": [asdict(setting) for setting in self._settings.values()],
            "losses": [asdict(loss) for loss in self._losses.values()],
            "bytes_per_vector": self.n_bytes / len(self),
        }

    def save(self, path: str | Path) -> None:
        """Write the index into a directory; if that is cut off, what was there stays readable."""
        write_parts(Path(path), self._parts())

    def _parts(self) -> Parts:
        return Parts(
            base=self.base,
            graph=self.graph,
            spaces=self.spaces[1:],
            labels=self.labels,
            validation=self.validation,
            settings=tuple(self._settings.values()),
            losses=tuple(self._losses.values()),
        )

    @classmethod
    def _of(cls, parts: Parts) -> "RoutingIndex":
        index = cls(parts.base, parts.graph, parts.spaces, parts.labels, parts.validation)
        index._settings = {(each.space, each.k, each.target): each for each in parts.settings}
        index._losses = {each.space: each for each in parts.losses}
        return index


def load(path: str | Path, *, mmap: bool = False, verify: bool = True) -> RoutingIndex:
    """Read an index that `RoutingIndex.save` wrote.

    Args:
        path: its directory.
        mmap: map vectors and graph instead of reading them, so that processes share them.
        verify: compare every array with its checksum, which reads all of it. Without it a damaged
            file may give wrong answers, but never a crash: ids are checked always.
    """
    meta, arrays = read_index(Path(path), mmap=mmap, verify=verify)
    try:
        return RoutingIndex._of(assemble(meta, arrays, verify=verify))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: expected an intact index, got {error}") from error
