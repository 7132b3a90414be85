"""The main job on real data: word vectors, a graph over them, answers within a budget, learning."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from l2route.cli.progress import bar, learning_bars
from l2route.data.public import Words, demo_words
from l2route.data.truth import Truth, exact_neighbors
from l2route.evaluation.measure import measure_all
from l2route.evaluation.plots import plot_recall_against_budget
from l2route.evaluation.tables import Row, rich_table
from l2route.index import RoutingIndex

DEGREE = 16
"""The paper's (M = 8); the graph is as faiss builds it, so that it is learning that is shown."""
BUDGETS = (128, 256, 512)
SHOWN_BUDGET = 512
"""Budget that the words shown were found with."""
LEARNED_BUDGET = 256
"""Budget that routing is learned for; the table shows it at the others too."""
LEARNING_MINUTES = 1.0
N_SHOWN = 8
"""Query words shown with their neighbours."""
FIRST_RANK = 4000
"""More frequent words are near to everything."""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the demo's files.")],
    seed: Annotated[int, typer.Option(help="Splits the words into base and queries.")] = 0,
) -> None:
    """Search 100,000 real word vectors: build, learn, measure, show."""
    out.mkdir(parents=True, exist_ok=True)
    run_demo(out, Console(), seed)


def run_demo(out: Path, console: Console, seed: int = 0) -> list[Row]:
    """Build, search, measure and draw; what is found is printed and kept in `out`.

    Args:
        out: directory for the picture, the index and the cached ground truth.
        console: where to print.
        seed: cuts the words into base, training and test.
    """
    words = demo_words(seed=seed)
    data = words.dataset
    n_learn = 0 if data.learn is None else len(data.learn)
    console.print(
        f"glove.6B.50d: {len(data.base):,} words to search, {n_learn:,} training queries, "
        f"{len(data.query):,} test queries; l2 between unit vectors, seed {seed}"
    )
    with bar("building the NSW graph") as progress:
        index = RoutingIndex.build(
            data.base,
            data.metric,
            degree=DEGREE,
            entry="medoid",
            seed=seed,
            refine=False,
            progress=progress,
        )
    with bar("exact neighbours of test queries") as progress:
        truth = exact_neighbors(
            data.base, data.query, 10, data.metric, cache=out, progress=progress
        )
    with learning_bars() as (progress, on_event):
        index.learn(
            data.learn,
            budget=LEARNED_BUDGET,
            minutes=LEARNING_MINUTES,
            seed=seed,
            progress=progress,
            on_event=on_event,
        )
    index.save(out / "words.l2r")
    rows = [
        row
        for space in index.spaces
        for row in measure_all(index, data.query, truth, BUDGETS, space=space.name)
    ]
    caption = f"{len(data.query):,} test queries, one thread; learned for {LEARNED_BUDGET}"
    console.print(rich_table(rows, caption))
    console.print(_neighbours(words, index, truth))
    picture = out / "recall.png"
    plot_recall_against_budget(rows, picture, "Words (glove.6B.50d): recall against budget")
    console.print(
        f"picture: {picture}\nindex:   {out / 'words.l2r'}", highlight=False, soft_wrap=True
    )
    return rows


def _neighbours(words: Words, index: RoutingIndex, truth: Truth) -> Table:
    """Words that people know, with what was found and how much of it is right."""
    table = Table(title=f"found with {SHOWN_BUDGET} distance computations", title_justify="left")
    for heading in ("word", "nearest words of the base", "of the true 5"):
        table.add_column(heading)
    chosen = _familiar(words)
    result = index.search(words.dataset.query[chosen], k=5, budget=SHOWN_BUDGET)
    for query, ids in zip(chosen, result.ids.tolist(), strict=True):
        n_true = len(set(ids) & set(truth.ids[query, :5].tolist()))
        names = ", ".join(words.base_words[i] for i in ids)
        table.add_row(words.query_words[query], names, str(n_true))
    return table


def _familiar(words: Words) -> list[int]:
    """Query words that are frequent, but not too frequent to have neighbours of their own."""
    ranked = sorted((int(rank), i) for i, rank in enumerate(words.query_ranks))
    plain = (i for rank, i in ranked if rank >= FIRST_RANK and words.query_words[i].isalpha())
    return list(islice(plain, N_SHOWN))
