"""What is to be learned: queries with their true neighbours, cut into training and validation."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data import check_vectors, normalize, split_learn, validation_mask
from l2route.graph import Graph
from l2route.metrics import knn_recall_at
from l2route.oracle import BLOCK_TARGETS
from l2route.search import Searcher
from l2route.spaces import BaseVectors, RoutingSpace, original_space
from l2route.training.options import LearnOptions
from l2route.truth import Truth, exact_distances, exact_neighbors

SHARPNESS = 3.0
"""Softmax of scores in units of the gap between the best and the eighth best visited."""
N_COMPARED = 50_000
"""Base vectors and queries that are held against each other."""
N_ASKED = 2000
"""Queries that are asked for a statistic."""
LOOK_ALIKE = 0.4
"""Share of nearest neighbours that are base vectors, of as many of both, from which on queries and
base vectors are taken to be of one kind."""
OTHERS_EF = 64
"""Beam width of the search for base vectors' nearest others."""
MEMORY = 6 << 30
"""Bytes of hop blocks that are held at once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be learned: training and validation queries with their true neighbours."""

    graph: Graph
    base: BaseVectors
    train: NDArray[np.float32]
    """Training queries, and after them base vectors that serve as such."""
    validation: NDArray[np.float32]
    targets: NDArray[np.int64]
    """The k nearest neighbours of each training query [n_train, k]."""
    hidden: NDArray[np.int32]
    """The vertex that each training query is, and that its walk is not to see; −1 for none."""
    nearest: NDArray[np.float32]
    """True distances of the k nearest of each validation query [n_validation, k]."""
    scale: float
    """Multiplies vectors and queries, so that vectors have root-mean-square length 1."""

    def digest(self) -> str:
        """What tells this problem from others."""
        digest = hashlib.blake2b(self.base.metric.encode(), digest_size=16)
        graph = (self.graph.neighbors, self.graph.entries)
        for array in (*graph, self.base.rows, self.train, self.targets, self.validation):
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def recall(self, space: RoutingSpace, options: LearnOptions) -> float:
        """Recall@k of validation queries at the total budget."""
        searcher = Searcher(self.graph, space, self.base)
        rerank = options.rerank if searcher.reranks else 0
        budget = space.budget(options.budget, self.base.dim, rerank)
        k = self.nearest.shape[1]
        found = searcher.search(self.validation, k, budget, n_threads=options.n_threads)
        distances = self.base.exact_distances(self.validation, found.ids)
        return knn_recall_at(distances, self.nearest, k)


def pose(
    graph: Graph,
    base: BaseVectors,
    queries: object,
    options: LearnOptions,
    progress: Callable[[int, int], None] | None = None,
    cache: Path | None = None,
    neighbors: object = None,
) -> Problem:
    """Cut validation queries from the training queries and find everyone's true neighbours.

    Args:
        graph: the graph to walk.
        base: base vectors.
        queries: training queries [n_queries, dim].
        options: how to learn.
        progress: called with queries done and in all while true neighbours are found.
        cache: directory to keep the true neighbours in.
        neighbors: true neighbours of the training queries, row numbers [n_queries, at least k],
            nearest first, if they are known.
    """
    checked = check_vectors("queries", queries, base.dim)
    if len(checked) < 20:
        raise ValueError(f"expected at least 20 training queries, got {len(checked)}")
    if options.k > graph.n_vertices:
        raise ValueError(f"expected k of at most {graph.n_vertices}, got {options.k}")
    routed = normalize(checked) if base.metric == "cosine" else checked
    n_validation = min(options.n_validation, len(checked) // 10)
    train, validation = split_learn(routed, n_validation, options.seed)
    both, vectors = np.concatenate([train, validation]), base.vectors()
    if neighbors is None:
        truth = exact_neighbors(
            vectors, both, options.k, base.metric, cache=cache, progress=progress
        )
    else:
        is_validation = validation_mask(len(routed), n_validation, options.seed)
        known = _known(neighbors, is_validation, options.k, len(vectors))
        truth = Truth(known, exact_distances(vectors, both, known, base.metric))
    length = float(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1).mean()))
    targets, hidden = truth.ids[: len(train)], np.full(len(train), -1, dtype=np.int32)
    learns_from_base = options.learns_from_base
    if learns_from_base is None:
        learns_from_base = look_alike(base, train, validation, options.seed)
    if learns_from_base:
        others = nearest_others(graph, base, options)
        ids, nearest = base_as_queries(graph, others, targets)
        train = np.concatenate([train, vectors[ids]])
        targets, hidden = np.concatenate([targets, nearest]), np.concatenate([hidden, ids])
    return Problem(
        graph=graph,
        base=base,
        train=train,
        validation=validation,
        targets=targets,
        hidden=hidden,
        nearest=truth.distances[-len(validation) :],
        scale=1.0 / length if length > 0 else 1.0,
    )


def _known(
    neighbors: object, is_validation: NDArray[np.bool_], k: int, n_vertices: int
) -> NDArray[np.int64]:
    """Neighbours that the caller knows, those of training queries first [n_queries, k]."""
    ids, n = np.asarray(neighbors), len(is_validation)
    if ids.ndim != 2 or len(ids) != n or ids.shape[1] < k or ids.dtype.kind not in "iu":
        expected = f"neighbors int [{n}, at least {k}]"
        raise ValueError(f"expected {expected}, got {ids.dtype} {list(ids.shape)}")
    if ids.min() < 0 or ids.max() >= n_vertices:
        raise ValueError(f"expected neighbors in [0, {n_vertices}), got {ids.min()}, {ids.max()}")
    nearest = ids[:, :k].astype(np.int64)
    return np.concatenate([nearest[~is_validation], nearest[is_validation]])


def look_alike(
    base: BaseVectors, train: NDArray[np.float32], validation: NDArray[np.float32], seed: int
) -> bool:
    """Whether a query is as near to base vectors as it is to other queries.

    Of as many of both, half the nearest are of either kind if both come from one distribution.
    Only under a distance: by inner product a vector need not be near to itself.
    """
    if base.metric == "ip":
        return False
    rng = np.random.default_rng(seed)
    vectors = base.vectors()
    n = min(len(vectors), len(train), N_COMPARED)
    asked = validation[:N_ASKED]
    sides = [rows[rng.permutation(len(rows))[:n]] for rows in (vectors, train)]
    near_base, near_train = (
        exact_neighbors(side, asked, 1, base.metric).distances[:, 0] for side in sides
    )
    share = (near_base < near_train).mean() + 0.5 * (near_base == near_train).mean()
    return bool(share >= LOOK_ALIKE)


def nearest_others(graph: Graph, base: BaseVectors, options: LearnOptions) -> NDArray[np.int64]:
    """The k nearest other vectors of every base vector, −1 where there are fewer [n, k].

    The nearest is taken to be the nearest of a vector's neighbours in the graph, which it nearly
    always is; of more than one, a search tells.
    """
    vectors = base.vectors()
    if options.k > 1:
        searcher = Searcher(graph, original_space(base), base)
        ef = max(OTHERS_EF, 2 * options.k)
        found = searcher.search(vectors, options.k + 1, ef=ef, n_threads=options.n_threads).ids
        is_itself = found == np.arange(len(found))[:, None]  # [n, k + 1]
        is_itself[~is_itself.any(axis=1), -1] = True  # of equal ones another may have come first
        others: NDArray[np.int64] = found[~is_itself].reshape(len(found), options.k)
        return others
    apart = np.full(len(vectors), np.inf, dtype=np.float32)  # [n]
    nearest = np.full(len(vectors), -1, dtype=np.int64)  # [n]
    for neighbor in graph.neighbors.T:  # [n]
        used = np.flatnonzero(neighbor >= 0)
        distances = ((vectors[used] - vectors[neighbor[used]]) ** 2).sum(axis=1)
        nearer = used[distances < apart[used]]
        apart[nearer] = distances[distances < apart[used]]
        nearest[nearer] = neighbor[nearer]
    return nearest[:, None]


def base_as_queries(
    graph: Graph, nearest: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Base vectors that can be asked for, and the nearest other vectors of each.

    Hidden from its own walk, a base vector is one more query. Vectors are left out that are
    entries, that have no neighbour, or of whose targets one would make the oracle hold more than it
    may.

    Args:
        graph: the graph.
        nearest: nearest others of each vector, −1 for none [n, k].
        targets: targets that the oracle knows already.
    """
    is_known = np.zeros(len(nearest), dtype=bool)
    is_known[targets] = True
    room = max(0, max_blocks(graph) * BLOCK_TARGETS - int(is_known.sum()))
    is_known[np.setdiff1d(nearest[nearest >= 0], np.flatnonzero(is_known))[:room]] = True
    usable: NDArray[np.bool_] = np.all((nearest >= 0) & is_known[nearest], axis=1)  # [n]
    usable[graph.entries] = False
    ids = np.flatnonzero(usable).astype(np.int32)
    return ids, nearest[ids]


def max_blocks(graph: Graph) -> int:
    """Blocks of hops that are held at once."""
    return max(1, MEMORY // (graph.n_vertices * BLOCK_TARGETS // 2))


def find_crossroads(problem: Problem, options: LearnOptions) -> NDArray[np.int64]:
    """Vertices that plain walks come by so often that they can learn a vector of their own."""
    sample = problem.train[:N_ASKED]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    budget = searcher.space.budget(options.budget, problem.base.dim, 0)
    found = searcher.search(sample, 1, budget, n_threads=options.n_threads, trace=True)
    assert found.trace is not None
    counts = np.bincount(found.trace.vertices, minlength=problem.graph.n_vertices)  # [n]
    per_epoch = counts / len(sample) * len(problem.train)
    return np.flatnonzero(per_epoch >= options.visits_per_weight * (problem.base.dim + 1))


def calibrate_sharpness(problem: Problem, options: LearnOptions) -> float:
    """α such that the softmax tells the best visited from the eighth best, but not by much.

    Too soft, noisy walks are worse than greedy ones and training first unlearns; too sharp, most
    steps teach nothing.
    """
    sample = problem.train[:500]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    budget = searcher.space.budget(options.budget, problem.base.dim, 0)
    found = searcher.search(sample, 8, budget, n_threads=options.n_threads).distances  # [n, 8]
    gaps = (found[:, 7] - found[:, 0])[np.isfinite(found[:, 7])]
    halved = 0.5 if problem.base.metric == "l2" else 1.0  # scores are halves of squared distances
    gap = float(gaps.mean()) * halved * problem.scale**2 if len(gaps) else 0.0
    return SHARPNESS / gap if gap > 0 else 1.0
