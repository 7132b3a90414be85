"""Laws of limits: resolved in one place, the same for every kind of search, never exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexes import QUERIES, N, built, same_results, with_everything
from l2route.index import RoutingIndex
from l2route.search.layout import padded_dim
from l2route.search.limits import MAX_K, Limits, check_alone, left_for_routing, spent
from l2route.search.space import RoutingSpace

# Total, D, C, k, rDCS of every compressed and uncompressed cell of the paper's Table 1.
TABLE_1 = [
    *((128, 128, 1, 0, 128), (128, 128, 1, 8, 120), (128, 128, 2, 8, 112), (128, 128, 4, 16, 320)),
    *((256, 128, 1, 0, 256), (256, 128, 1, 8, 248), (256, 128, 2, 16, 352)),
    *((256, 128, 4, 32, 768), (512, 128, 1, 0, 512), (512, 128, 1, 16, 496)),
    *((512, 128, 2, 64, 768), (128, 96, 1, 0, 128), (128, 96, 1, 8, 120), (128, 96, 2, 8, 144)),
    *((128, 96, 4, 32, 288), (256, 96, 1, 0, 256), (256, 96, 1, 8, 248), (256, 96, 2, 16, 384)),
    *((256, 96, 4, 64, 672), (512, 96, 1, 0, 512), (512, 96, 1, 16, 496), (512, 96, 2, 64, 800)),
    *((128, 300, 1, 0, 128), (128, 300, 1, 8, 120), (128, 300, 4, 8, 180), (256, 300, 1, 0, 256)),
    *((256, 300, 1, 8, 248), (256, 300, 2, 8, 196), (256, 300, 4, 32, 596)),
    *((512, 300, 1, 0, 512), (512, 300, 1, 16, 496), (512, 300, 2, 32, 660)),
]


@pytest.mark.parametrize(("total", "dim", "compression", "rerank", "routing"), TABLE_1)
def test_a_total_leaves_the_rdcs_of_table_1(
    total: int, dim: int, compression: int, rerank: int, routing: int
) -> None:
    """A total budget leaves the rDCS of the paper's Table 1, and spending that costs the total."""
    routing_dim = dim // compression
    n_projection = 0 if compression == 1 else routing_dim
    assert left_for_routing(total, rerank, n_projection, routing_dim, dim) == routing
    assert spent(routing, rerank, n_projection, routing_dim, dim) == total


@given(
    total=st.integers(1, 2000),
    dim=st.integers(1, 400),
    routing_dim=st.integers(1, 400),
    rerank=st.integers(0, 100),
    is_projected=st.booleans(),
)
def test_a_total_is_never_overspent(
    total: int, dim: int, routing_dim: int, rerank: int, is_projected: bool
) -> None:
    """The routing vectors that a total allows cost at most the total; one more would exceed it.

    The least total named by the error allows at least one routing vector, and one less allows none.
    """
    others = (rerank, routing_dim * is_projected, routing_dim, dim)
    least = next(t for t in range(sum(others[:2]), 10**6) if spent(1, *others) <= t)
    if total < least:
        with pytest.raises(ValueError, match=f"expected a budget of at least {least}, .* {total}$"):
            left_for_routing(total, *others)
        return
    routing = left_for_routing(total, *others)
    assert routing >= 1
    assert spent(routing, *others) <= total
    assert spent(routing + 1, *others) > total


@dataclass(frozen=True)
class Kind:
    """The properties of a space on which limits depend."""

    is_exact: bool
    original_dim: int | None
    """None: queries are not projected."""
    has_distances: bool
    dim: int = 6
    rerank: int = 32
    n: int = 50

    def space(self) -> RoutingSpace:
        """A space of this kind."""
        rows = np.zeros((self.n, padded_dim(self.dim)), np.float32)
        matrix = None
        if self.original_dim is not None:
            matrix = np.zeros((self.dim, self.original_dim), np.float32)
        return RoutingSpace(
            rows,
            self.dim,
            "ip",
            matrix,
            bias=None if self.is_exact else np.zeros(self.n, np.float32),
            rerank=self.rerank,
            origin=1.0 if self.has_distances else None,
            is_exact=self.is_exact,
        )


def twin(kind: Kind, limits: Limits, k: int) -> tuple[int, int, int, float] | None:
    """The rules one by one, in exact arithmetic; None for limits that are refused."""
    budget, ef, slack, rerank = limits
    if k < 1 or k > MAX_K or (ef is not None and ef < 1):
        return None
    if slack is not None and not (0 <= slack < inf and kind.has_distances):
        return None
    if slack is not None and ef is not None and ef > 2048:
        return None
    if rerank is not None and rerank < (0 if kind.is_exact else 1):
        return None
    has_budget = budget is not None or (ef is None and slack is None)
    if kind.is_exact:
        rerank = 0
    elif rerank is None and has_budget:
        rerank = max(k, kind.rerank)
    elif rerank is None:
        rerank = max(k, ef) if slack is None else 2 * k
    n_projection = 0 if kind.original_dim is None else kind.dim
    routing = kind.n
    if has_budget:
        total = max(256, 2 * (rerank + n_projection)) if budget is None else budget
        share = Fraction(kind.dim, kind.original_dim or kind.dim)
        paid = [r for r in range(1, kind.n + 2) if r * share + rerank + n_projection <= total]
        if not paid:
            return None
        routing = max(paid)
    if slack is not None and ef is None:
        ef = 2048
    width = 0 if ef is None else min(ef, kind.n + 1)
    return routing, width, min(rerank, kind.n + 1), -1.0 if slack is None else slack


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value or None."""
    return st.none() | values


LIMITS = st.builds(
    Limits,
    budget=maybe(st.integers(-2, 300) | st.integers(300, 10**30)),
    ef=maybe(st.integers(-1, 60) | st.sampled_from([2048, 2049, 10**30])),
    slack=maybe(st.sampled_from([-0.1, 0.0, 0.25, 1e6, inf, float("nan")])),
    rerank=maybe(st.integers(-1, 60) | st.integers(60, 10**30)),
)
KINDS = [
    Kind(is_exact, original_dim, has_distances)
    for is_exact, original_dim, has_distances in product(
        (True, False), (None, 4, 6, 25), (True, False)
    )
    if not (is_exact and original_dim)
]


@settings(max_examples=400)
@given(
    kind=st.sampled_from(KINDS),
    limits=LIMITS,
    k=st.integers(-1, 70) | st.sampled_from([MAX_K, MAX_K + 1]),
)
@example(kind=KINDS[0], limits=Limits(ef=2048, slack=0.25), k=3)
@example(kind=KINDS[0], limits=Limits(ef=2049, slack=0.25), k=3)
@example(kind=KINDS[-1], limits=Limits(rerank=200), k=3)
def test_limits_resolve_as_their_twin(kind: Kind, limits: Limits, k: int) -> None:
    """Defaults and checks equal those of the twin, for any combination of limits."""
    expected = twin(kind, limits, k)
    if expected is None:
        with pytest.raises(ValueError, match=r"^expected .*got"):
            limits.resolve(kind.space(), k)
    else:
        assert limits.resolve(kind.space(), k) == expected


@cache
def searched() -> dict[str, RoutingIndex]:
    """Indexes with exact, projected, biased and coded spaces, one with validation queries."""
    pca, rotated = built(pca_dim=5), built()
    rotated.compress("int4")  # rotates queries into a larger dimension
    return {"everything": with_everything(), "pca": pca, "rotated": rotated}


USUAL = st.builds(
    Limits,
    budget=maybe(st.integers(100, 700)),
    ef=maybe(st.integers(1, 60)),
    slack=maybe(st.sampled_from([0.0, 0.1, 0.5])),
    rerank=maybe(st.integers(1, 60)),
)


@settings(max_examples=150)
@given(
    name=st.sampled_from(["everything", "pca", "rotated"]),
    place=st.integers(0, 3),
    limits=USUAL,
    k=st.integers(1, 40),
    recall=st.none() | st.just(0.9),
    n_threads=st.sampled_from([0, 1, 2]),
)
def test_every_way_to_search_answers_alike(
    name: str, place: int, limits: Limits, k: int, recall: float | None, n_threads: int
) -> None:
    """index.search, index.plan and searcher.search agree in answers and error messages.

    A budget is never exceeded, and a rerank is applied with any other limit.
    """
    index = searched()[name]
    space = index.spaces[place % len(index.spaces)].name
    options: dict[str, Any] = {**limits._asdict(), "space": space, "n_threads": n_threads}
    searcher = index.searcher(space)
    if recall is not None and index.validation is not None:
        k, limits = 5, Limits()
        options |= {"recall": recall, **limits._asdict()}
        limits = index.setting(recall, k, space=space).limits
    try:
        found = index.search(QUERIES, k, **options)
    except ValueError as error:
        for call in (
            lambda: index.plan(k, **options),
            lambda: searcher.search(QUERIES, k, limits=limits),
        ):
            with pytest.raises(ValueError) as other:  # noqa: PT011 # messages are compared
                call()
            assert str(other.value) == str(error)  # noqa: PT017 # an error is allowed here
        return
    assert same_results(index.plan(k, **options)(QUERIES), found)
    own = searcher.search(QUERIES, k, limits=limits, n_threads=n_threads)
    labels = np.arange(N) if index.labels is None else index.labels
    np.testing.assert_array_equal(np.where(own.ids < 0, -1, labels[own.ids]), found.ids)
    np.testing.assert_array_equal(own.n_computed, found.n_computed)
    if limits.budget is not None:
        assert (found.n_computed <= limits.budget).all()
    if limits.rerank is not None and not searcher.space.is_exact:
        # A walk with a slack may keep fewer vertices than are to be reranked.
        assert (found.n_rerank <= limits.rerank).all()
        if limits.slack is None:
            visited = searcher.search(QUERIES, k, limits=limits, trace=True).trace
            assert visited is not None
            n_visited = np.diff(visited.offsets)  # less than is counted: finding entries costs too
            assert (found.n_rerank == np.minimum(limits.rerank, n_visited)).all()


@given(limits=LIMITS, recall=st.floats(0.1, 1.0))
def test_a_recall_stands_alone(limits: Limits, recall: float) -> None:
    """Any limit given with a recall is refused, and the message names it."""
    given_ = [f"{name}={value}" for name, value in limits._asdict().items() if value is not None]
    if not given_:
        check_alone(recall, limits)
        return
    for call in (
        lambda: check_alone(recall, limits),
        lambda: searched()["pca"].search(QUERIES, recall=recall, **limits._asdict()),
        lambda: searched()["pca"].plan(recall=recall, **limits._asdict()),
    ):
        with pytest.raises(ValueError, match="expected a recall, or else budget, ef, ") as error:
            call()
        assert str(error.value).endswith(f"got recall={recall} with {', '.join(given_)}")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(ef=0), "expected ef of at least 1, got 0"),
        (Limits(slack=-0.5), "expected a finite slack of at least 0, got -0.5"),
        (Limits(rerank=-1), "expected rerank of at least 0, got -1"),
        (Limits(ef=9, rerank=0), r"expected rerank of at least 1 in space 'pca5', .*, got 0"),
        (
            Limits(37, rerank=32),
            r"expected a budget of at least 38, with 32 for rerank and 5 .* 37",
        ),
    ],
    ids=str,
)
def test_each_condition_has_its_own_message(limits: Limits, message: str) -> None:
    """The error names what was expected and what was found."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        limits.resolve(searched()["pca"].spaces[-1], 10)


@pytest.mark.parametrize(
    "limits", [Limits(2.5), Limits(ef="9"), Limits(rerank=1.0), Limits(None, None, "1")]
)
def test_counts_are_integers(limits: Limits) -> None:
    """A count that is not an integer, or a slack that is not a number, is a TypeError."""
    with pytest.raises(TypeError):
        limits.resolve(searched()["pca"].spaces[-1], 10)
