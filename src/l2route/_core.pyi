"""
C++ core of l2route: counted scorers, beam search, pruning and rollouts.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def simd_levels() -> list[str]:
    """Names of the SIMD kernels this machine can run, fastest first."""

def normalized(queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
    """
    Queries [n, dim] scaled to length 1, as a search by cosine scales them.
    """

def rotated(vectors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)], simd: str = 'auto') -> NDArray[numpy.float32]:
    """
    Vectors [n, n_in] padded with zeros and rotated by signs [n_rounds, dim]: [n, dim].
    """

def scan_ns(row_bytes: int) -> float:
    """Nanoseconds to score a row in a scan."""

def walk_ns(row_bytes: int) -> float:
    """Nanoseconds to score a row in a walk."""

SCORES_PER_LIST: int = 2

class Graph:
    """A similarity graph; trusts that ids were checked."""

    def __init__(self, neighbors: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], upper: Sequence[tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]]]) -> None: ...

class Rows:
    """Padded vectors or codes, and how they are scored."""

    def __init__(self, rows: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], scorer: str, *, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, code_bits: int = 8, offset: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, scale: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, near: Rows | None = None, simd: str = 'auto') -> None:
        """rows [n, width]; near: copies of the neighbours' rows, list by list."""

    def scores(self, query: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
        """Score all rows against a padded query [width]; smaller is nearer."""

    def scores_at(self, query: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
        """The same of the rows of these numbers [n], prefetched in blocks."""

def tree_parents(graph: Graph, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.int32]:
    """
    A parent of every vertex that lists it [n], -1 for roots: a tree from the entries. Vertices labelled -1 need not be reachable.
    """

class InsertOptions:
    """How neighbours of new slots are chosen."""

    def __init__(self, *, ef: int, n_candidates: int, degree: int, trimmed: int, alpha: float, trim_alpha: float) -> None: ...

class Reading:
    """While it exists, no slot that it may see is used again."""

    def __init__(self, store: Store) -> None: ...

    def __enter__(self) -> Reading: ...

    def __exit__(self, *args: object) -> None: ...

class Store:
    """Slots of an index that changes; one thread at a time."""

    def __init__(self, *, lists: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], copies: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], n_slots: int, longest: float) -> None: ...

    @property
    def n_live(self) -> int: ...

    @property
    def n_dead(self) -> int: ...

    @property
    def n_slots(self) -> int: ...

    @property
    def room(self) -> int: ...

    def labels(self) -> NDArray[numpy.int64]:
        """
        A copy of the labels of all slots, also while another thread changes them.
        """

    def slots_of(self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.int32]:
        """Slots of ids [n]; -1 for ids that are not there."""

    def take(self, ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.int32]:
        """Slots for new ids [n]."""

    def begin(self, replaces: bool) -> None:
        """Begin an insertion, of new ids or of ids that are in other slots."""

    def commit(self) -> None:
        """End an insertion; slots whose ids it has given to others are dead."""

    def roll_back(self) -> None:
        """Undo an insertion that has begun and not ended; nothing otherwise."""

    def kill(self, slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Delete live slots."""

    def await_searches(self, most: int) -> None:
        """
        Wait until the searches that are running have ended, at most so many ms.
        """

    def place(self, slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, exact: Rows, options: InsertOptions, n_threads: int) -> None:
        """Choose lists and parents of new slots; nothing leads to them yet."""

    def publish(self, slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, exact: Rows, options: InsertOptions, n_threads: int) -> None:
        """Label placed slots, and add the edges that lead to them."""

    def renew(self, n: int, *, exact: Rows, options: InsertOptions, n_threads: int) -> None:
        """Choose new neighbours for the next n slots."""

    def repair(self, exact: Rows, *, alpha: float, n_threads: int) -> None:
        """Remove dead slots from the graph, as far as searches permit."""

    def mend_tree(self, exact: Rows, *, alpha: float) -> None:
        """Give live parents to the children of dead slots."""

    def set_entries(self, entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def note_changes(self, changed: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], renewed: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Note changes that were taken but not dealt with."""

    def take_changes(self) -> tuple[NDArray[numpy.int32], NDArray[numpy.int32]]:
        """
        Slots with changed lists, and slots with new vectors or labels, since the last call.
        """

N_STOP_FEATURES: int = 9

N_STOP_TERMS: int = 55

class StopRule:
    """A learned rule by which walks end."""

    def __init__(self, factors: Sequence[float], centre: Sequence[float], scale: Sequence[float], weights: Sequence[float], threshold: float, first: int) -> None:
        """
        factors: of squared distances, by level; weights: 1, features, products of two.
        """

def record_walks(searcher: Searcher, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], factors: Sequence[float], k: int, rerank: int, n_threads: int) -> tuple[NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.int32]]:
    """
    Walk with queries [n, dim] from level to level, and return at each: features [n, n_levels, N_STOP_FEATURES], all 0 of a walk that finds fewer than k vertices, vectors scored [n, n_levels], and the max(k, rerank) best vertices [n, n_levels, n_best].
    """

class Filter:
    """Which vertices may be answers."""

    def __init__(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, n_bits: int, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, n_alive: int = 0) -> None:
        """
        words: bit v of word v / 64 for vertex v, none for all; labels: −1 does not pass; n_alive: labels other than −1, where there are no words.
        """

    @property
    def count(self) -> int:
        """Number of vertices whose bit is set."""

class EntryTable:
    """Entry points that depend on the query."""

    def __init__(self, rows: Rows, *, first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], clusters: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], vertices: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], coordinates: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], centre: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
        """
        rows: centroids of groups, then of the clusters of every group; first: row of each group's first cluster, and the end; clusters: cluster of each row after the groups; vertices: entry points of each cluster, or −1. All of it is trusted.
        """

    def max_cost(self, routing_dim: int) -> int:
        """
        The most that finding entry points may cost, in scores of routing vectors.
        """

    def find(self, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], routing_dim: int) -> tuple[NDArray[numpy.int32], NDArray[numpy.int32]]:
        """
        Entry points of queries [n, dim], padded with −1, and what finding them costs.
        """

class Searcher:
    """Beam search over one graph in one routing space."""

    def __init__(self, graph: Graph, routing: Rows, *, dim: int, is_cosine: bool, origin: float, query_matrix: Rows | None, query_centre: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, signs: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, centre: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, original: Rows | None, entries: EntryTable | None = None, store: Store | None = None) -> None: ...

class Plan:
    """A search with fixed limits, labels and threads."""

    def __init__(self, searcher: Searcher, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, k: int, routing: int, beam: int, rerank: int, slack: float, n_threads: int, is_budgeted: bool = False, *, way: str = 'any', n_work: int = 0, scan_rerank: int = 0, sieve: tuple[int, int, float, int] | None = None, rule: StopRule | None = None) -> None:
        """
        is_budgeted to sieve matter under filters only. sieve: beam, rerank, slack and n_work of walks through what does not pass. rule: ends walks without a filter in place of the slack.
        """

    def search(self, queries: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], filters: Sequence[Filter] = []) -> tuple[NDArray[numpy.int64], NDArray[numpy.float32], NDArray[numpy.int32]]:
        """
        Answer queries [n, dim] or [dim], under no filter, one for all or one for each: ids, distances, and counts of routing, rerank, hops and lists looked through.
        """

    def trace(self, queries: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], filters: Sequence[Filter] = []) -> tuple[NDArray[numpy.int64], NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.int32], NDArray[numpy.float32], NDArray[numpy.int64], NDArray[numpy.int32]]:
        """
        Search, and also return the visited vertices (offsets, vertices, hops, scores) and the expanded ones (offsets, vertices).
        """

class Stream:
    """A search that goes on where it stopped."""

    def __init__(self, searcher: Searcher, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, query: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], filter: Filter | None, ef: int, rerank: int) -> None: ...

    def next(self, count: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.float32]]:
        """The next ids and distances, at most `count` and ef; none at the end."""

def search_radius(searcher: Searcher, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], radii: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], filters: Sequence[Filter], ef: int, n_threads: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.float32]]:
    """
    All within the radius of each query [n]: offsets [n + 1], ids, distances.
    """

def breadth_first_order(graph: Graph) -> NDArray[numpy.int32]:
    """Vertices in the order of a breadth-first search from the entries [n]."""

def pruned_lists(*, rows: Rows, candidates: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], degree: int, alpha: float, n_threads: int) -> NDArray[numpy.int32]:
    """
    Prune candidates [n, width], add reverse edges, and return lists [n, degree].
    """

def mutual_lists(*, rows: Rows, lists: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], alpha: float, n_threads: int) -> NDArray[numpy.int32]:
    """Add reverse edges to lists [n, degree], and prune those that overflow."""

def lacking_edges(graph: Graph, *, rows: Rows, nearest: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_threads: int) -> NDArray[numpy.int32]:
    """
    Edges [m, 2] by which the nearest neighbours [n, depth] of each query would all reach each other, query by query.
    """

class Inserter:
    """Inserts vertices into lists that others may be searching."""

    def __init__(self, *, lists: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], is_copy: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], walked: Rows, exact: Rows, entries: Sequence[int] = [], labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, options: InsertOptions, longest: float = 0.0) -> None: ...

    def place(self, slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, *, n_threads: int) -> None:
        """
        Choose lists and parents of new slots, whose rows are written; nothing leads to them.
        """

    def publish(self, slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, n_threads: int) -> None:
        """Add the edges that lead to placed slots."""

    def renewed(self, vertices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, *, ef: int, n_candidates: int, degree: int, alpha: float, n_threads: int) -> NDArray[numpy.int32]:
        """New lists [n, degree] of vertices, from walks on the graph as it is."""

    @property
    def entries(self) -> list[int]:
        """Entry vertices; the first is the root of the tree."""

    @entries.setter
    def entries(self, arg: Sequence[int], /) -> None: ...

    @property
    def longest(self) -> float:
        """Squared length of the longest vector, for rows scored by ip."""

def hops_to_targets(graph: Graph, targets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint64]:
    """Hops from every vertex to up to 512 targets, bit-sliced [n, 8, 4]."""

class Targets:
    """Hops to one target per query, by block and column."""

    def __init__(self, blocks: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None, 8, 4), order='C', device='cpu', writable=False)]], block_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], column_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class RolloutOptions:
    """How walks of a rollout are sampled and weighted."""

    def __init__(self, *, budget: int, k: int, temperature: float, routing_weight: float, topk_weight: float, topk_sharpness: float, teacher_forcing: bool, seed: int) -> None: ...

def rollout(graph: Graph, vertices: Rows, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], targets: Targets, options: RolloutOptions, *, query_ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], hidden: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], with_query_gradient: bool, n_threads: int, starts: tuple[Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]] | None = None) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.bool_], NDArray[numpy.bool_], NDArray[numpy.float32]]:
    """
    Walk and differentiate the objective: offsets, vertices, gradients, routing, topk, n_steps, is_found, is_kept, gradient in query rows. starts: where walks start [n, n_starts], padded with −1, and what finding that costs in scores [n]; none for the entry points of the graph.
    """

def vertex_gradient(*, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], vertices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], gradients: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], query_rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_vertices: int, n_threads: int) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """Gradient in vertex rows [n, width] and biases [n]."""

def json_arrays(body: bytes, floats: Sequence[str], integers: Sequence[str], texts: str, most_texts: int) -> tuple:
    """
    Read lists of numbers, and one of texts, in an object of JSON into arrays.

    Returns the object without these fields, and arrays by name: float32 for `floats`, int64 for `integers`; [n, m] for a list of lists, otherwise [n]; for `texts`, of which there may be `most_texts`, where each begins and ends in the body, with its quotes. Text that is no JSON is a SyntaxError, other values in these fields are a ValueError.
    """
