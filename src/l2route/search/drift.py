"""Drift: whether routing spaces still serve the vectors that an index has now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import paired_p_value, recall_per_query
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import COMPRESSIONS, compress_space
from l2route.search.encode import encode_space
from l2route.search.gain import Gain
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.setting import LOSS_EF, LOSS_K
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.search.validation import Validation
from l2route.search.vertex_map import FilterMap

SHARE_KEPT = 0.75
"""Learning again pays if less than this share of the gain is left. On glove100, half of the vectors
new (benchmarks/following.py), learning afresh brought 0.8 points of recall where 0.87 of the gain
were left, and 2.4 points where 0.70 were."""
WORTH = 0.005
"""Encoding again pays if it brings at least this much recall."""
CONFIDENCE = 0.99
"""Confidence that encoding again is better, in a one-sided paired test."""
ERRORS = 1.64
"""Standard errors that a gain has to be below its share: a confidence of 95%."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Recall@k on the validation queries, among the vectors that the index has now."""

    space: str
    """Name of the space."""
    k: int
    """Answers per query."""
    now: float
    """Recall@k of the space as it is."""
    anew: float
    """Recall@k of the space with all vertices encoded anew: learned maps applied to the lists as
    they are now, PCA and scales of codes fitted to the vectors as they are now."""
    plain: float
    """Recall@k of the plain space of the same cost: the original vectors, or their PCA."""
    gain: float | None
    """What learning gained in recall@k when it was done; None if the space is not learned."""
    encode_again: bool
    """Whether encoding all vertices anew would pay."""
    learn_again: bool
    """Whether learning again would pay: much of the gain is lost, and encoding does not bring it
    back."""

    def __str__(self) -> str:
        facts = f"{self.space}: recall@{self.k} {self.now:.3f}, encoded anew {self.anew:.3f}, "
        facts += f"plain {self.plain:.3f}"
        if self.gain is not None:
            facts += f", gained {self.gain:+.3f} when learned"
        advice = "learn again" if self.learn_again else "encode again"
        return f"{facts}: {advice if self.learn_again or self.encode_again else 'keep'}"


def measure_drift(
    graph: Graph, base: BaseVectors, spaces: Sequence[RoutingSpace], validation: Validation
) -> list[Drift]:
    """Measure each learned, projected or compressed space; the original one cannot drift.

    The true neighbours of the queries are found anew, and every space is made anew beside the one
    that there is: that takes about as long as compressing the index.

    Args:
        graph: the graph as it is now.
        base: the vectors as they are now.
        spaces: spaces of the index. Those that cannot be made anew are left out.
        validation: queries held out from learning; their neighbours need not be true any more.
    """
    present = Validation.of(base, validation.queries)
    return [
        _drift(graph, base, space, present)
        for space in spaces
        if space.vertex_map is not None and not space.is_exact
    ]


def with_gain(
    space: RoutingSpace, graph: Graph, base: BaseVectors, validation: Validation
) -> RoutingSpace:
    """A learned space with its gain measured on these queries; other spaces as they are."""
    if space.gain is None:
        return space
    gain = space.gain
    k = min(gain.k, validation.neighbors.shape[1])
    recalls = [
        float(_recalls(graph, base, each, validation, k, _limits(each, gain)).mean())
        for each in (_plain(base, gain), space)
    ]
    return replace(space, gain=replace(gain, plain=recalls[0], learned=recalls[1]))


def _drift(graph: Graph, base: BaseVectors, space: RoutingSpace, validation: Validation) -> Drift:
    gain = space.gain
    k = min(LOSS_K if gain is None else gain.k, validation.neighbors.shape[1])
    now, anew, plain = (
        _recalls(graph, base, each, validation, k, _limits(each, gain))
        for each in (space, made_anew(space, base, graph), _plain(base, gain))
    )
    best = anew if anew.mean() > now.mean() else now
    brings = float(anew.mean() - now.mean())
    return Drift(
        space=space.name,
        k=k,
        now=float(now.mean()),
        anew=float(anew.mean()),
        plain=float(plain.mean()),
        gain=None if gain is None else gain.learned - gain.plain,
        encode_again=brings >= WORTH and paired_p_value(anew - now) <= 1 - CONFIDENCE,
        learn_again=gain is not None and _is_lost(gain, best - plain),
    )


def _is_lost(gain: Gain, gains: NDArray[np.float64]) -> bool:
    """Whether too little of a gain is left in the gains of each query [n], with confidence."""
    error = float(gains.std() / np.sqrt(len(gains)))
    return float(gains.mean()) + ERRORS * error < SHARE_KEPT * (gain.learned - gain.plain)


def made_anew(space: RoutingSpace, base: BaseVectors, graph: Graph) -> RoutingSpace:
    """The space as it would be if it were encoded now; PCA is computed anew, learned maps stay."""
    source, _, compression = space.name.partition("-")
    is_pca = source.startswith("pca") and not isinstance(space.vertex_map, FilterMap)
    if not is_pca or len(base.rows) < base.dim:
        return encode_space(space, base, graph)
    fresh = pca_space(base, int(source.removeprefix("pca")))
    fresh = compress_space(fresh, compression) if compression in COMPRESSIONS else fresh
    return replace(fresh, inlined=space.inlined)


def _plain(base: BaseVectors, gain: Gain | None) -> RoutingSpace:
    dim = None if gain is None else gain.pca_dim
    return original_space(base) if dim is None else pca_space(base, dim)


def _limits(space: RoutingSpace, gain: Gain | None) -> Limits:
    """Limits with as many scores as when the gain was measured, however long the vectors are."""
    if gain is None:
        return Limits(ef=LOSS_EF)
    if space.is_exact:
        return Limits(gain.budget)
    scored = -(-gain.routing * space.dim // space.original_dim)
    return Limits(gain.rerank + space.n_projection + scored, rerank=gain.rerank)


def _recalls(
    graph: Graph,
    base: BaseVectors,
    space: RoutingSpace,
    validation: Validation,
    k: int,
    limits: Limits,
) -> NDArray[np.float64]:
    """Recall@k of each validation query [n]."""
    found = Searcher(graph, replace(space, inlined=False), base).search(
        validation.queries, k, limits=limits
    )
    nearest = base.exact_distances(validation.queries, validation.neighbors[:, :k])
    return recall_per_query(base.exact_distances(validation.queries, found.ids), nearest, k)
