"""The demo: 100,000 word vectors, recall at equal cost plain and learned, and a served index.

Two experiments, both beside hnswlib if it is installed. The first shows what learning gains at
equal numbers of distance computations, on the paper's graph. The second serves the same words by
`l2route.build`, and compares queries per second at equal recall.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from l2route.cli.progress import bar, learning_bars, step_bars
from l2route.data.dataset import Dataset
from l2route.data.labels import Labels
from l2route.data.public import Words, demo_words
from l2route.evaluation.compare.peers import Hnswlib
from l2route.evaluation.judge import Judge
from l2route.evaluation.plots import plot_recall_against_distances
from l2route.index import RoutingIndex
from l2route.interop.hnswlib_import import from_hnswlib
from l2route.recipe.build import build
from l2route.search.space import rerank_within

K = 10
"""Answers per query."""
BUDGETS = (128, 256, 512)
"""Distance computations per query that methods are compared at, and that one space is learned for.
"""
DEGREE = 16
"""Degree of the paper's graph, which is not refined, and of hnswlib's beside it (M = 8)."""
SERVED_DEGREE = 32
"""Degree of hnswlib's graph beside the served index (M = 16); the served one has 32, too."""
RECALL = 0.95
"""Recall@10 of the served index."""
PAGE_RECALL = 0.8
"""Recall@10 whose setting the page marks on the curve of the first experiment's index."""
LEARNING_STEPS, SERVING_MINUTES = 600, 0.4
"""Steps of learning in the first experiment, so that a busy machine learns as much as an idle one;
time limit of learning in the second."""
WIDEST = 2000
"""Largest beam width that is tried for hnswlib."""
N_TUNED = 1000
"""Training queries that hnswlib's beam width is chosen on."""
N_TIMED = 3
"""Times that all test queries are searched; the fastest counts."""
N_SHOWN, N_NEIGHBOURS = 6, 5
"""Query words shown, and neighbours of each."""
FIRST_RANK = 4000
"""Rank of the first word shown; more frequent words are near to everything."""

Vectors = NDArray[np.float32]
Search = Callable[[Vectors], NDArray[np.int64]]
"""From queries to the ids of K answers each."""


@dataclass(frozen=True, slots=True)
class Point:
    """A method at one setting, on the test queries."""

    method: str
    budget: int | None
    """Distance computations allowed; None in the second experiment."""
    recall: float
    """Recall@10."""
    n_computed: float | None
    """Distance computations per query."""
    microseconds: float
    """Time per query on one thread."""
    bytes_per_vector: float | None = None


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the demo's files.")],
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
) -> None:
    """Search 100,000 real word vectors: build, learn, serve, and compare with hnswlib."""
    out.mkdir(parents=True, exist_ok=True)
    run_demo(demo_words(seed=seed), out, Console(), seed)


def run_demo(
    words: Words,
    out: Path,
    console: Console,
    seed: int = 0,
    steps: int = LEARNING_STEPS,
    minutes: float = SERVING_MINUTES,
) -> tuple[list[Point], list[Point]]:
    """Run both experiments, print their tables, and write a picture, both indexes and the words.

    Args:
        words: base words, training queries and test queries.
        out: directory for the picture, the indexes and the words.
        console: where to print.
        seed: seed of every random choice.
        steps: steps of learning in the first experiment.
        minutes: time limit of learning in the second.

    Returns:
        The rows of both tables.
    """
    data = words.dataset
    assert data.learn is not None
    console.print(
        f"glove.6B.50d: {len(data.base):,} words to search, {len(data.learn):,} training queries, "
        f"{len(data.query):,} test queries; l2 between unit vectors, seed {seed}"
    )
    judge = Judge(data, K)
    equal_cost, learned = _compare_at_equal_cost(data, judge, console, seed, steps)
    served, index = _compare_at_equal_recall(data, judge, console, seed, minutes)
    console.print(_neighbours(words, index, judge))
    picture, directory = out / "recall.png", out / "words.l2r"
    index.save(directory, overwrite=True)
    title = "Words (glove.6B.50d): recall at equal numbers of distance computations"
    plot_recall_against_distances(_curves(equal_cost), picture, title, K)
    console.print(f"picture: {picture}\nindex:   {directory}", highlight=False, soft_wrap=True)
    console.print(_page(words, learned, directory, out), highlight=False, soft_wrap=True)
    return equal_cost, served


def _page(words: Words, learned: RoutingIndex, served: Path, out: Path) -> str:
    """Save what the page needs, and say how to open it.

    The page opens the index of the first experiment if it has a learned space: at equal cost, the
    plain walk and the learned one can be told apart. Words are named by frequency, so that the page
    offers frequent ones first.
    """
    names, path, directory = out / "words.tsv", out / "paper.l2r", served
    ranked = np.argsort(words.base_ranks)
    Labels.of([words.base_words[i] for i in ranked.tolist()], ranked).write(names)
    if len(learned.spaces) > 1:
        learned.setting(PAGE_RECALL, K)  # which the page marks on the curve
        learned.save(path, overwrite=True)
        directory = path
    return f"page:    l2route serve {directory} --labels {names}"


def _compare_at_equal_cost(
    data: Dataset, judge: Judge, console: Console, seed: int, steps: int
) -> tuple[list[Point], RoutingIndex]:
    """Plain, learned and hnswlib at the same numbers of distance computations; and our index."""
    with bar("building the paper's graph") as progress:
        index = RoutingIndex.build(
            data.base,
            data.metric,
            graph="nsw",
            degree=DEGREE,
            entry="medoid",
            seed=seed,
            n_threads=0,
            refine=False,
            progress=progress,
        )
    with learning_bars() as (progress, on_event):
        report = index.learn(
            data.learn,
            budget=BUDGETS,
            k=(1, K),
            steps=steps,
            seed=seed,
            progress=progress,
            on_event=on_event,
        )
    points = [
        _routed(judge, index, "learned" if space.name != "original" else "plain", budget)
        for budget in BUDGETS
        for space in index.spaces
    ]
    console.print(f"\nlearned: {report}", highlight=False)
    points += _hnswlib_at_budgets(data, judge, console, seed)
    points.sort(key=lambda point: point.budget or 0)  # keeps the order of methods
    console.print(_cost_table(points))
    for reason in _losses(points):
        console.print(reason, highlight=False)
    return points, index


def _routed(judge: Judge, index: RoutingIndex, method: str, budget: int) -> Point:
    """Measure one of our spaces at a budget."""
    is_plain = method == "plain"
    plan = index.plan(
        K,
        budget=budget,
        space="original" if is_plain else None,
        n_threads=1,
    )
    n_computed = float(plan(judge.data.query).n_computed.mean())
    recall, microseconds = _timed(judge, lambda queries: plan(queries).ids)
    return Point(method, budget, recall, n_computed, microseconds)


def _hnswlib_at_budgets(data: Dataset, judge: Judge, console: Console, seed: int) -> list[Point]:
    """Measure hnswlib at the beam widths that compute as many distances as each budget allows.

    Its Python package does not count distances. They are counted by our search, which walks
    the same graph in the same way.
    """
    peer = _hnswlib(data, DEGREE, console, seed)
    if peer is None:
        return []
    assert data.learn is not None
    same, tuned = from_hnswlib(peer.index), data.learn[:N_TUNED]
    beams: Sequence[int] = range(K, WIDEST)

    def count(ef: int, queries: Vectors) -> float:
        return float(same.search(queries, K, ef=ef).n_computed.mean())

    points = []
    for budget in BUDGETS:
        within = bisect_right(beams, float(budget), key=lambda ef: count(ef, tuned))
        if not within:
            least = f"it computes at least {count(K, tuned):.0f} distances for {K} answers"
            console.print(f"hnswlib at {budget}: left out, since {least}", highlight=False)
            continue
        peer.set(ef := K + within - 1)
        recall, microseconds = _timed(judge, lambda queries: peer.search(queries, K))
        n_computed = count(ef, data.query)
        points.append(Point("hnswlib", budget, recall, n_computed, microseconds))
    return points


def _compare_at_equal_recall(
    data: Dataset, judge: Judge, console: Console, seed: int, minutes: float
) -> tuple[list[Point], RoutingIndex]:
    """A served index and hnswlib at the same recall."""
    with step_bars() as (progress, on_event):
        index, report = build(
            data.base,
            data.learn,
            metric=data.metric,
            k=K,
            recall=RECALL,
            minutes=minutes,
            seed=seed,
            progress=progress,
            on_event=on_event,
        )
    console.print(f"\nl2route.build: {report}", highlight=False, soft_wrap=True)
    plan = index.plan(K, recall=RECALL, n_threads=1)
    points = [
        _point(judge, "l2route", lambda queries: plan(queries).ids, index.n_bytes / len(index))
    ]
    peer = _hnswlib(data, SERVED_DEGREE, console, seed)
    if peer is not None:
        peer.set(_reaching(peer, data))
        size = (peer.n_bytes() or 0) / len(index)
        points.append(_point(judge, "hnswlib", lambda queries: peer.search(queries, K), size))
    console.print(_speed_table(points))
    return points, index


def _point(judge: Judge, method: str, search: Search, bytes_per_vector: float) -> Point:
    recall, microseconds = _timed(judge, search)
    return Point(method, None, recall, None, microseconds, bytes_per_vector)


def _hnswlib(data: Dataset, degree: int, console: Console, seed: int) -> Hnswlib | None:
    """Build hnswlib's index of the words; None, with the reason printed, if not installed."""
    try:
        peer = Hnswlib(degree, seed=seed, n_threads=-1)
    except ImportError as error:
        console.print(f"hnswlib: left out, since {error}", highlight=False)
        return None
    with bar(f"building hnswlib, M = {degree // 2}") as progress:
        progress(0, None)
        peer.build(data)
    return peer


def _reaching(peer: Hnswlib, data: Dataset) -> int:
    """The smallest beam width of hnswlib that reaches the recall on training queries."""
    assert data.learn is not None
    tuned = Judge(Dataset(data.name, data.base, data.learn[:N_TUNED], metric=data.metric), K)

    def recall(ef: int) -> float:
        peer.set(ef)
        return tuned.recall(peer.search(tuned.data.query, K))

    return K + bisect_left(range(K, WIDEST), RECALL, key=recall)


def _timed(judge: Judge, search: Search) -> tuple[float, float]:
    """Recall@10 on the test queries, and microseconds per query."""
    queries, seconds = judge.data.query, []
    for _ in range(N_TIMED):
        begin = time.perf_counter()
        ids = search(queries)
        seconds.append(time.perf_counter() - begin)
    return judge.recall(ids), min(seconds) / len(queries) * 1e6


def _losses(points: Sequence[Point]) -> list[str]:
    """Why learning loses, for each budget at which it does."""
    recalls = {(point.method, point.budget): point.recall for point in points}
    to_hnswlib = [
        f"at {budget} hnswlib finds more: through its upper layers it starts near the query, where "
        "the paper's graph starts at the medoid"
        for budget in BUDGETS
        if recalls.get(("learned", budget), 1.0) < recalls.get(("hnswlib", budget), 0.0)
    ]
    return to_hnswlib + [
        f"at {budget} learning loses: it spends {rerank_within(budget, K)} of {budget} distances "
        "on reranking, a plain search none"
        for budget in BUDGETS
        if recalls.get(("learned", budget), 1.0) < recalls["plain", budget]
    ]


def _cost_table(points: Sequence[Point]) -> Table:
    title = f"recall@{K} at equal cost, degree {DEGREE}, one thread"
    table = _table(title, "budget", "method", f"recall@{K}", "distances", "µs/query")
    for point in points:
        cells = (f"{point.recall:.3f}", f"{point.n_computed:.0f}", f"{point.microseconds:.1f}")
        table.add_row(str(point.budget), point.method, *cells)
    return table


def _speed_table(points: Sequence[Point]) -> Table:
    title = f"at a recall@{K} of {RECALL:g}, degree {SERVED_DEGREE}, one thread"
    table = _table(title, "method", f"recall@{K}", "queries/s", "to l2route", "bytes/vector")
    for point in points:
        speed = f"{1e6 / point.microseconds:,.0f}"
        ratio = f"{points[0].microseconds / point.microseconds:.2f}×"
        size = f"{point.bytes_per_vector:.0f}"
        table.add_row(point.method, f"{point.recall:.3f}", speed, ratio, size)
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for heading in headings:
        is_text = heading in ("method", "word", "nearest words")
        table.add_column(heading, justify="left" if is_text else "right")
    return table


def _curves(points: Sequence[Point]) -> dict[str, NDArray[np.float64]]:
    """Distances and recalls of each method [n_points, 2]."""
    methods = dict.fromkeys(point.method for point in points)
    return {
        method: np.array([(p.n_computed, p.recall) for p in points if p.method == method])
        for method in methods
    }


def _neighbours(words: Words, index: RoutingIndex, judge: Judge) -> Table:
    """Some query words with the nearest words that were found."""
    title = f"nearest words, found at a recall@{K} of {RECALL:g}"
    table = _table(title, "word", "nearest words", f"of the true {N_NEIGHBOURS}")
    chosen = _familiar(words)
    result = index.search(words.dataset.query[chosen], K, recall=RECALL)
    for query, ids in zip(chosen, result.ids[:, :N_NEIGHBOURS].tolist(), strict=True):
        n_true = len(set(ids) & set(judge.truth.ids[query, :N_NEIGHBOURS].tolist()))
        names = ", ".join(words.base_words[i] for i in ids)
        table.add_row(words.query_words[query], names, str(n_true))
    return table


def _familiar(words: Words) -> list[int]:
    """Query words that are frequent, but not too frequent to have neighbours of their own."""
    ranked = sorted((int(rank), i) for i, rank in enumerate(words.query_ranks))
    plain = (i for rank, i in ranked if rank >= FIRST_RANK and words.query_words[i].isalpha())
    return list(islice(plain, N_SHOWN))
