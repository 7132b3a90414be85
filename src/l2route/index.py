"""RoutingIndex: vectors, a graph over them and the routing spaces that steer searches on it."""

from collections.abc import Callable, Sequence
from operator import index as index_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_metric
from l2route.explain.explaining import Explaining
from l2route.extras import install
from l2route.files.progress import Progress
from l2route.files.snapshots import Snapshot, list_snapshots, restore_snapshot, take_snapshot
from l2route.files.storage import is_behind
from l2route.graph.build import (
    DEGREE,
    GraphKind,
    GraphOptions,
    served_entry,
)
from l2route.graph.entry import Entry
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import Compression
from l2route.search.drift import Drift
from l2route.search.space import RoutingSpace
from l2route.search.validation import Validation
from l2route.state import changes
from l2route.state.build import build_state
from l2route.state.calibrating import Calibrating
from l2route.state.changing import Changing, checked_ids
from l2route.state.current import Current
from l2route.state.info import info
from l2route.state.merging import catch_up
from l2route.state.persist import arrays_of, meta_of, read_state, state_of
from l2route.state.refining import Refining
from l2route.state.saves import commit, save
from l2route.state.searching import Searching
from l2route.state.snapshot import empty_state, living_state
from l2route.state.state import IndexState
from l2route.training.options import LearnKeywords, LearnOptions, with_keywords

if TYPE_CHECKING:  # serving never imports torch
    from l2route.training.log import Event
    from l2route.training.report import Report


class RoutingIndex(Searching, Changing, Calibrating, Refining, Explaining):
    """A similarity graph over vectors that answers queries.

    Any number of threads may search, also while another thread changes the index. Searches see it
    before or after `learn`, `refine`, `renumber` and `compress`. They can find every vector whose
    `add` had returned when they began, and none whose `delete` had. Changes run one after another;
    `save` and `info` of an index with changes in place take turns with them. Ids are any distinct
    int64 other than −1.

    Args:
        base: the original vectors.
        graph: a graph over the vectors.
        spaces: routing spaces beside the original one; searches use the last by default.
        labels: id of each vertex in answers [n], distinct and not −1; row numbers by default.
        validation: queries on which settings are measured.
    """

    def __init__(
        self,
        base: BaseVectors,
        graph: Graph,
        spaces: Sequence[RoutingSpace] = (),
        labels: NDArray[np.int64] | None = None,
        validation: Validation | None = None,
    ) -> None:
        state = IndexState.of(base, graph, spaces, labels, validation)
        super().__init__(Current(state if graph.n_vertices else living_state(state)))

    @classmethod
    def build(
        cls,
        vectors: object,
        metric: str = "l2",
        *,
        graph: GraphKind = "l2route",
        degree: int = DEGREE,
        ef_construction: int | None = None,
        entry: Entry | None = None,
        seed: int = 0,
        n_threads: int | None = None,
        pca_dim: int | None = None,
        refine: bool | None = None,
        ids: object = None,
        progress: Progress | None = None,
    ) -> "RoutingIndex":
        """Build a graph over vectors [n, dim] in which every vertex is reachable.

        Args:
            vectors: base vectors, any real dtype.
            metric: l2, ip or cosine.
            graph: l2route (the project's own), nsw, hnsw, nsg, knn or approximate-knn.
            degree: maximum number of neighbours of a vertex.
            ef_construction: beam width while building l2route (by default as the data need), nsw
                and hnsw (300).
            entry: entry points: a vertex id, several, "medoid", "medoids" (of 32 clusters) or
                "longest" (the 32 longest vectors). Default: hnsw and nsg have their own; other
                graphs use "medoids", or "longest" for ip.
            seed: seed of every random choice.
            n_threads: threads; 0 for all cores, the default for l2route, which is the same for any
                number. Default 1 for others: nsw, hnsw and nsg by several differ from run to run.
            pca_dim: build on, and route by, that many principal components (the paper's
                compressed baseline); answers are reranked by the original vectors.
            refine: refine the graph as `refine` does. Default: nsw only.
            ids: ids of the vectors [n]; row numbers by default.
            progress: called with the amount done and in total while l2route, nsw and hnsw are
                built, and again while the graph is refined.
        """
        if entry is None:
            entry = served_entry(graph, metric)
        options = GraphOptions(graph, degree, ef_construction, entry, seed, n_threads)
        refines = graph == "nsw" if refine is None else refine
        state = build_state(vectors, metric, options, pca_dim, refines, ids, progress)
        return cls._of(Current(state))

    @classmethod
    def empty(cls, dim: int, metric: str = "l2", *, degree: int = DEGREE) -> "RoutingIndex":
        """An index without vectors, to add some to.

        Args:
            dim: dimension of the vectors.
            metric: l2, ip or cosine.
            degree: maximum number of neighbours of a vertex, at least 2.
        """
        if index_of(dim) < 1 or index_of(degree) < 2:
            got = f"{dim} and {degree}"
            raise ValueError(f"expected a dimension of at least 1 and a degree of 2, got {got}")
        return cls._of(Current(empty_state(index_of(dim), check_metric(metric), index_of(degree))))

    @property
    def base(self) -> BaseVectors:
        """The original vectors."""
        return self._current.dense().base

    @property
    def graph(self) -> Graph:
        """The graph, whose vertices are rows of `base`."""
        return self._current.dense().graph

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Id of each vertex in answers [n]; None for row numbers."""
        return self._current.dense().labels

    @property
    def validation(self) -> Validation | None:
        """Queries on which settings are measured."""
        return self._current.validation()

    @property
    def spaces(self) -> tuple[RoutingSpace, ...]:
        """Routing spaces: the original one first, the default one last."""
        return self._current.dense().spaces

    @property
    def dim(self) -> int:
        """Dimension of the vectors and of queries."""
        return self._current.state.base.dim

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays in memory; inlined copies and room for more vectors included."""
        return self._current.state.n_bytes

    def learn(
        self,
        queries: object,
        options: LearnOptions | None = None,
        *,
        neighbors: object = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        on_event: "Callable[[Event], None] | None" = None,
        **overrides: Unpack[LearnKeywords],
    ) -> "Report":
        """Learn a routing space from a query log; searches use it if it is better.

        Validation queries are held out from the distinct queries of the log. One half of them
        selects the best training state. On the other half the learned space must be better, with a
        confidence of 99%, than the plain space of its dimension, the original vectors and the
        current default space, at the budget or the recall that is the training target. By default
        the targets are several budgets, for one answer and for ten: their average has to be better,
        and none may have lost more than half a point of recall. If it is not, or if there are too
        few queries to tell, the index keeps its spaces and the report says why. A learned space
        that is kept replaces an earlier one, compressed or not. Up to 2,000 validation queries are
        kept in the index, as by `validate_with`.

        Args:
            queries: training queries [n_queries, dim], distributed like those of later searches.
            options: how to learn; see `LearnOptions` for all options and their defaults.
            neighbors: true neighbours of the queries by the ids of answers [n_queries, at least k],
                nearest first; computed by an exact search if not given. Those of validation
                queries are always computed.
            checkpoint: file that the state of the run is saved to, and resumed from if it exists.
            log: file that an event per validation is appended to, as JSON lines. If TensorBoard is
                installed, its events go to the directory named `log` with `.tb` appended.
            cache: directory that keeps true neighbours and hops for later runs on the same graph
                and queries: half a byte per target and vertex, 5 GB for 100,000 of both.
            progress: called with queries done and in total while true neighbours are computed.
            on_event: called after every validation.
            **overrides: fields of `LearnOptions`, which override those in `options`. `model` may
                also be a user-defined `l2route.models.protocol.RoutingModel`.
        """
        chosen, model = with_keywords(options, overrides)
        try:
            from l2route.training.train import train
        except ImportError as error:
            raise ImportError(f"learning needs: {install('train')}") from error
        with self._current.changing() as before:
            space, report = train(
                before.graph,
                before.base,
                queries,
                chosen,
                model,
                neighbors=None if neighbors is None else before.rows_of(neighbors),
                rivals=before.rivals(chosen.dim),
                checkpoint=None if checkpoint is None else Path(checkpoint),
                log=None if log is None else Path(log),
                cache=None if cache is None else Path(cache),
                progress=progress,
                on_event=on_event,
            )
            better = space if report.is_better else None
            self._current.swap(before, changes.learned(before, better, report.validation))
        return report

    def compress(
        self,
        routing: Compression | None = "int8",
        *,
        vectors: Literal["float16"] | None = None,
        space: str | None = None,
        inlined: bool = False,
    ) -> None:
        """Store routing vectors, original vectors or both in fewer bytes.

        The compressed space becomes the default and replaces the one it is made from, unless that
        is the original one. With validation queries, `info` reports the loss of recall.

        Args:
            routing: int2, int4, int8 or float16 for routing vectors; None leaves them.
            vectors: float16 for the original vectors, by which answers are reranked; distances
                are then those of the rounded vectors. None leaves them.
            space: name of the space to compress; by default the last of `spaces`.
            inlined: while the index is in memory, keep copies of all neighbours' routing vectors
                with every vertex, as NGT-QG and SymphonyQG do; `info` reports the bytes.
        """
        self._current.change(lambda old: changes.compressed(old, routing, vectors, space, inlined))

    def relabel(self, ids: object) -> None:
        """Give the vectors other ids, in the order of `ids` and of the rows of `base`.

        Args:
            ids: [n], distinct int64 other than −1.
        """
        labels = checked_ids(ids)
        self._current.unsaved.is_relabelled = True
        self._current.change(lambda state: changes.relabelled(state, labels))

    def renumber(self) -> None:
        """Renumber the vertices in breadth-first order, so that searches miss caches less often.

        Answers keep their ids: they become labels if there are none.
        """
        self._current.change(changes.renumbered)

    def drift(self) -> list[Drift]:
        """Measure on the validation queries whether to encode or learn again; `info` keeps it.

        Beside the recall of each space as it is: that of the space encoded anew, and of the plain
        space of the same cost.
        """
        with self._current.changing() as state:
            drifts = changes.with_drifts(state).drifts
            self._current.note_drifts(drifts)
        return list(drifts.values())

    def info(self) -> dict[str, Any]:
        """Summary of the index, as a dict of plain values.

        Of an index with changes in place it needs a copy. Settings measured before the changes are
        left out.
        """
        return info(self._current.dense())

    def save(
        self,
        path: str | Path | None = None,
        *,
        overwrite: bool = False,
        merge: bool = True,
    ) -> None:
        """Write the index into a directory; if interrupted, the old one stays readable.

        If the directory holds this index as it was before vectors were added or deleted, only what
        changed is written; changes wait meanwhile, searches do not. When `save` has returned, the
        index survives a crash.

        If another process has saved the index meanwhile, its changes are kept: those of vectors and
        names are made here too, and those made here are made in what it learned, refined or
        compressed. What cannot be joined, such as two refinements, is a
        `l2route.StaleError`, and so is an index that was restored.

        Args:
            path: the directory; by default that of the last `save`, or of `load`.
            overwrite: whether to replace any index in the directory, with all changes of others;
                otherwise one that this index was not loaded from is a FileExistsError.
            merge: whether changes that others have saved are kept together with these; otherwise
                they are a StaleError.
        """
        target = None if path is None else Path(path)
        save(self._current, target, overwrite=overwrite, merges=merge)

    def commit(self, *, merge: bool = True) -> None:
        """Write changes of vectors and names into the journal of the index's directory.

        They then survive a crash, as after `save`, at the cost of one write. `load` makes them
        again, which takes as long as it took; the next `save` empties the journal.

        Args:
            merge: as for `save`.
        """
        commit(self._current, follows=merge)

    def refresh(self, *, discard: bool = False, n_threads: int = 0) -> bool:
        """Bring in what other processes have saved in the directory of the index.

        Changes made here are kept, and are not saved by this.

        Args:
            discard: whether to give up changes made here if the index was restored or replaced;
                otherwise that is a StaleError.
            n_threads: threads that insert vectors; 0 for all cores.

        Returns:
            Whether there was something.
        """
        assert self._directory
        with self._current.alone():
            return catch_up(self._current, gives_way=discard, n_threads=n_threads)

    def snapshot(self, name: str | None = None, *, keep: int | None = None) -> Snapshot:
        """Save the index, and keep it as it is now under a name.

        The snapshot is the directory `snapshots/NAME` in that of the index. It is an index itself,
        never changes, and shares its files with the index as hard links.

        Args:
            name: letters, digits, `_`, `-` and `.`; by default the time.
            keep: number of snapshots to keep, this one included; the oldest of the others are
                removed. None for all.
        """
        self.save()
        return take_snapshot(self._directory, name, keep)

    def restore(self, name: str) -> None:
        """Make the index, in memory and in its directory, what a snapshot is.

        Whatever it was is gone, with all changes since the snapshot, unless another snapshot has
        it. Servers of the directory follow; other processes get a
        `l2route.StaleError` when they save changes of what it was before.
        """
        restore_snapshot(self._directory, name)
        self.refresh(discard=True)

    def versions(self) -> list[Snapshot]:
        """The snapshots of the index, oldest first."""
        return list_snapshots(self._directory)

    @property
    def _directory(self) -> Path:
        saved = self._current.saved
        if saved is None:
            raise ValueError("expected an index that was saved or loaded, got another one")
        return saved.path

    @property
    def is_behind(self) -> bool:
        """Whether another process has saved something that this index does not have."""
        saved = self._current.saved
        return saved is not None and is_behind(saved)

    @property
    def n_journal_bytes(self) -> int:
        """Bytes of changes in the journal, which `load` makes again and `save` empties."""
        saved = self._current.saved
        return 0 if saved is None or saved.journal is None else saved.journal.end

    @property
    def has_unsaved(self) -> bool:
        """Whether there is something that neither `save` nor `commit` has written."""
        return self._current.saved is None or bool(self._current.unsaved)

    def __reduce__(self) -> tuple[Any, ...]:
        with self._current.alone():
            state = self._current.state
            return _restored, (meta_of(state), {k: v.copy() for k, v in arrays_of(state).items()})

    def __repr__(self) -> str:
        state = self._current.state
        base, spaces = state.base, ", ".join(state.searchers)
        kind = f"{base.dim} dimensions, {base.metric}"
        return f"<RoutingIndex: {len(self):,} vectors of {kind}; spaces: {spaces}>"

    @classmethod
    def _of(cls, current: Current) -> "RoutingIndex":
        index = cls.__new__(cls)
        index._current = current
        return index


def _restored(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RoutingIndex:
    """An index that was pickled or copied."""
    return RoutingIndex._of(Current(state_of(meta, arrays)))


def load(path: str | Path, *, mmap: bool = False, verify: bool = True) -> RoutingIndex:
    """Read an index that `RoutingIndex.save` wrote.

    Args:
        path: its directory.
        mmap: map the arrays instead of reading them, so that processes share memory. An index that
            was saved with places of deleted vectors is read: call `compact` before `save`.
        verify: compare every array with its checksum, which reads all of it. Without it a damaged
            file may give wrong answers, but never a crash: ids and labels are always checked.
    """
    state, saved = read_state(Path(path), mmap=mmap, verify=verify)
    current = Current(state, saved, is_mapped=mmap)
    catch_up(current)
    return RoutingIndex._of(current)
