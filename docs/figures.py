"""Draw the pictures of docs/concepts.md from searches of small indexes and from docs/results.md.

    python docs/figures.py                  # into docs/images
    python docs/figures.py --out pictures

Every point is measured: walks are traces of `RoutingIndex.search`, costs are its counts, and shares
of queries are those of docs/results.md. Colours are those of Okabe and Ito, which colour-blind
readers can tell apart.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.truth import exact_neighbors
from l2route.search.codes import decode_rows
from l2route.search.limits import left_for_routing

DOCS = Path(__file__).parent
BLUE, ORANGE, GREEN, RED, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9"
GREY, LIGHT = "#6b6b6b", "#c8c8c8"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "svg.hashsalt": "l2route",
}
Vectors = NDArray[np.float32]


def on_a_surface(n: int, dim: int, seed: int, inner_dim: int = 6) -> Vectors:
    """Vectors near a curved surface of few dimensions, as embeddings are [n, dim]."""
    maps = np.random.default_rng(0)
    inner, outer = maps.normal(size=(inner_dim, 24)), maps.normal(size=(24, dim))
    points = np.random.default_rng(seed).normal(size=(n, inner_dim))
    return (np.tanh(points @ inner) @ outer).astype(np.float32)


def expanded_by(index: RoutingIndex, query: Vectors, ef: int) -> tuple[list[int], list[int]]:
    """Vertices that a walk expands, in order, and all that it visits."""
    trace = index.search(query, k=1, ef=ef, trace=True).trace
    assert trace is not None
    return trace.expanded.tolist(), trace.vertices.tolist()


def draw_graph() -> Figure:
    """A graph over points in the plane, and a walk on it."""
    rng = np.random.default_rng(4)
    points = rng.uniform(size=(260, 2)).astype(np.float32) * [1.5, 1]
    first = int(((points - [0.06, 0.1]) ** 2).sum(axis=1).argmin())
    index = RoutingIndex.build(points, degree=5, entry=first)
    query = np.array([1.36, 0.83], dtype=np.float32)
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        draw_edges(axes, index, 0.35 if axes is right else 0.8)
        axes.set_aspect("equal")
        axes.set_axis_off()
    left.scatter(*points.T, s=9, color=BLUE, zorder=3)
    left.set_title("vectors, and edges to some neighbours")
    draw_walk(right, index, query, first)
    right.set_title("a walk, from neighbour to neighbour")
    return figure


def draw_edges(axes: Axes, index: RoutingIndex, width: float) -> None:
    """All edges of a graph in the plane, as one line with gaps."""
    points, lists = index.base.vectors(), index.graph.neighbors
    pairs = {tuple(sorted((v, u))) for v, row in enumerate(lists.tolist()) for u in row if u >= 0}
    gap = np.full(2, np.nan)
    line = np.array([each for v, u in sorted(pairs) for each in (points[v], points[u], gap)])
    axes.plot(*line.T, color=LIGHT, lw=width, zorder=1)


def draw_walk(axes: Axes, index: RoutingIndex, query: Vectors, first: int) -> None:
    """The vertices that a walk scores and expands."""
    points = index.base.vectors()
    expanded, visited = expanded_by(index, query, ef=4)
    nearest = int(index.search(query, k=1, ef=64).ids[0, 0])
    axes.scatter(*points.T, s=5, color=LIGHT, zorder=2)
    axes.scatter(*points[visited].T, s=20, color=SKY, zorder=3, label="scored")
    way = [expanded[0]]
    for v in expanded[1:]:  # the best so far
        if ((points[v] - query) ** 2).sum() < ((points[way[-1]] - query) ** 2).sum():
            way.append(v)
    axes.plot(*points[way].T, color=BLUE, lw=1.8, zorder=4)
    axes.scatter(*points[expanded].T, s=26, color=BLUE, zorder=5, label="expanded")
    axes.scatter(*points[first], s=60, marker="s", color=GREEN, zorder=6, label="entry point")
    axes.scatter(*query, s=150, marker="*", color=RED, zorder=6, label="query")
    axes.scatter(
        *points[nearest],
        s=110,
        facecolors="none",
        edgecolors=RED,
        lw=1.8,
        zorder=7,
        label="nearest neighbour",
    )
    axes.legend(loc="upper left", fontsize=8, framealpha=0.95, frameon=True)


def hops_in_results(dataset: str, budget: int) -> tuple[list[float], dict[str, list[float]]]:
    """Hops, and by method the share of queries that reached their neighbour, from results.md."""
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    text = text.split("## Figure 4")[1].split(f"### {dataset}\n")[1].split("### ")[0]
    heading = re.search(r"^\| budget \| method \|(.*hops.*)\| in the end \|$", text, re.MULTILINE)
    assert heading is not None
    hops = [float(cell.split()[0]) for cell in heading[1].split("|") if cell.strip()]
    rows = {}
    for method in ("original", "learned"):
        line = re.search(rf"^\| {budget} \| {method} \|((?: [\d.]+ \|)+)$", text, re.MULTILINE)
        assert line is not None
        rows[method] = [float(cell) for cell in line[1].split("|") if cell.strip()][:-1]
    return hops, rows


def draw_learning() -> Figure:
    """What learning changes: how soon walks reach the nearest neighbour."""
    figure = Figure(figsize=(9.6, 3.1), layout="constrained")
    for axes, dataset in zip(
        figure.subplots(1, 3, sharey=True), ("glove100", "sift", "deep96"), strict=True
    ):
        hops, rows = hops_in_results(dataset, 256)
        axes.plot(hops, rows["original"], "o--", color=ORANGE, ms=4, label="by original vectors")
        axes.plot(hops, rows["learned"], "s-", color=BLUE, ms=4, label="by learned vectors")
        axes.set_title(dataset)
        axes.set_xlabel("hops")
        axes.set_ylim(0, 1)
        axes.grid(color="#eeeeee")
    figure.axes[0].set_ylabel("share of queries that have\nseen their nearest neighbour")
    figure.axes[0].legend(loc="upper left", fontsize=8)
    return figure


def draw_slack() -> Figure:
    """Where walks end by slack and by beam width, of an easy query and of a hard one."""
    base = on_a_surface(20_000, 24, seed=1)
    queries = on_a_surface(400, 24, seed=2)
    index = RoutingIndex.build(base, entry="medoid")
    k, slack, ef = 10, 0.1, 40
    n_scored = index.search(queries, k, slack=slack).n_routing
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    order = np.argsort(n_scored)
    chosen = (
        ("few", order[len(order) // 10]),
        ("many", order[-len(order) // 10]),
    )
    for axes, (title, number) in zip(panels, chosen, strict=True):
        draw_ends(axes, index, queries[number], k, slack, ef)
        axes.set_title(f"{title} vectors nearly as near: {n_scored[number]:,} scored")
        axes.set_xlabel("vertices expanded")
    panels[0].set_ylabel("distance to the query")
    panels[0].legend(loc="upper right", fontsize=8)
    return figure


def draw_ends(
    axes: Axes, index: RoutingIndex, query: Vectors, k: int, slack: float, ef: int
) -> None:
    """Distances along a walk, the limit of the slack, and where both kinds of walks end."""
    expanded, _ = expanded_by(index, query, ef=120)
    points, lists = index.base.vectors(), index.graph.neighbors
    seen = set(index.graph.entries.tolist())
    limits, distances = [], []
    for v in expanded:
        distances.append(float(np.linalg.norm(points[v] - query)))
        seen.update(u for u in lists[v].tolist() if u >= 0)
        known = np.sort(np.linalg.norm(points[sorted(seen)] - query, axis=1))
        limits.append(float(known[min(k, len(known)) - 1]))
    steps = np.arange(1, len(expanded) + 1)
    axes.plot(steps, distances, ".", color=BLUE, ms=5, label="vertex that is expanded")
    axes.plot(steps, limits, "-", color=GREEN, lw=1.8, label=f"{k}-th best so far")
    axes.plot(
        steps,
        (1 + slack) * np.array(limits),
        "--",
        color=RED,
        lw=1.8,
        label=f"{1 + slack:g} times that",
    )
    ends = {
        "slack": int(index.search(query, k, slack=slack).n_hops[0]),
        f"ef={ef}": int(index.search(query, k, ef=ef).n_hops[0]),
    }
    low, high = min(distances + limits), max(distances[5:])
    axes.set_ylim(low - 0.15 * (high - low), high + 0.35 * (high - low))
    axes.set_xlim(0, 100)
    for (name, at), colour, style in zip(ends.items(), (RED, GREY), ("-", ":"), strict=True):
        axes.axvline(at, color=colour, ls=style, lw=1.4)
        axes.text(
            at + 1,
            axes.get_ylim()[0],
            f"{name} ends",
            color=colour,
            fontsize=8,
            va="bottom",
            rotation=90,
        )


def draw_budget() -> Figure:
    """What a budget of 256 distance computations is spent on, at 100 dimensions."""
    total, dim = 256, 100
    kinds = [
        ("original vectors", dim, 0, 0),
        ("learned vectors, rerank 8", dim, 8, 0),
        ("learned, 50 dimensions, rerank 16", 50, 16, 50),
        ("learned, 25 dimensions, rerank 32", 25, 32, 25),
    ]
    figure = Figure(figsize=(9.6, 2.6), layout="constrained")
    axes = figure.subplots()
    for i, (_, routing_dim, rerank, projection) in enumerate(kinds):
        routing = left_for_routing(total, rerank, projection, routing_dim, dim)
        cost = routing * routing_dim / dim
        parts = (
            (cost, BLUE, f"{routing} vertices scored"),
            (projection, ORANGE, ""),
            (rerank, GREEN, ""),
        )
        begin = 0.0
        for width, colour, text in parts:
            axes.barh(i, width, left=begin, color=colour, height=0.62)
            axes.text(begin + 4, i, text, color="white", va="center", fontsize=9)
            begin += width
    for colour, label in (
        (BLUE, "routing · d/D"),
        (ORANGE, "projection of the query: d"),
        (GREEN, "rerank"),
    ):
        axes.barh(0, 0, color=colour, label=label)
    axes.set_yticks(range(len(kinds)), [name for name, *_ in kinds])
    axes.invert_yaxis()
    axes.set_xlabel("distance computations of the original dimension D = 100")
    axes.set_xlim(0, total)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3, fontsize=9)
    return figure


def ranked_by_codes(k: int, rerank: int) -> tuple[NDArray[np.float64], Vectors, NDArray[np.bool_]]:
    """Recall of the k and of the `rerank` best by codes of four bits, and one query's best 60.

    Returns:
        Recalls by query [n_queries, 2]; true distances of the best of one query in the order of
        their scores [60], and whether each is a true neighbour [60].
    """
    base = on_a_surface(20_000, 64, seed=1, inner_dim=12)
    queries = on_a_surface(200, 64, seed=2, inner_dim=12)
    index = RoutingIndex.build(base)
    index.compress("int4")
    space = index.spaces[-1]
    assert space.bias is not None
    rows, centre = decode_rows(space), 0.0 if space.centre is None else space.centre
    scores = -(space.map_queries(queries) - centre) @ rows.T - space.bias
    order = np.argsort(scores, axis=1)[:, :60]
    truth = exact_neighbors(base, queries, k, "l2").ids
    is_true = np.array([np.isin(best, true) for best, true in zip(order, truth, strict=True)])
    recalls = np.stack([is_true[:, :n].sum(axis=1) / k for n in (k, rerank)], axis=1)
    shown = int(np.flatnonzero((recalls == [0.7, 1.0]).all(axis=1))[0])
    distances = np.linalg.norm(base[order[shown]] - queries[shown], axis=1)
    return recalls, distances, is_true[shown]


def draw_codes() -> Figure:
    """Scores by codes of four bits beside true distances, and what a rerank is for."""
    k, rerank = 10, 30
    recalls, distances, is_true = ranked_by_codes(k, rerank)
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    axes = figure.subplots()
    places = np.arange(1, len(distances) + 1)
    axes.axvspan(0.5, k + 0.5, color=SKY, alpha=0.25, lw=0, label=f"the {k} best by codes")
    label = f"the next {rerank - k}: reranked too"
    axes.axvspan(k + 0.5, rerank + 0.5, color=GREEN, alpha=0.15, lw=0, label=label)
    axes.plot(places[~is_true], distances[~is_true], "o", color=GREY, ms=4, label="other vectors")
    label = f"the {k} true neighbours"
    axes.plot(places[is_true], distances[is_true], "D", color=RED, ms=6, label=label)
    by_codes, by_rerank = recalls.mean(axis=0)
    axes.set_title(
        f"recall@{k} of {len(recalls)} queries: {by_codes:.2f} by codes of 4 bits alone, "
        f"{by_rerank:.3f} when {rerank} are reranked"
    )
    axes.set_xlabel("place by the score of the codes")
    axes.set_ylabel("true distance")
    axes.legend(loc="lower right", fontsize=8, ncols=2)
    return figure


def draw_filters() -> Figure:
    """What searches under filters cost, by the share of the vectors that pass."""
    n, rng = 30_000, np.random.default_rng(0)
    base, queries = on_a_surface(n, 24, seed=1), on_a_surface(200, 24, seed=2)
    index = RoutingIndex.build(base)
    shares = np.array(
        [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.97, 1.0]
    )
    work, scans = [], []
    for share in shares:
        passing = rng.permutation(n)[: int(share * n)]
        plan = index.plan(k=10, ef=64, where=index.filter(passing))
        found = [plan(query) for query in queries]
        work.append(np.mean([each.n_work[0] for each in found]))
        scans.append(np.mean([each.n_hops[0] == 0 for each in found]) > 0.5)
    plain = index.search(queries, k=10, ef=64).n_work.mean()
    is_scan = np.array(scans)
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(100 * shares, n * shares, "--", color=GREY, label="a scan of all that passes")
    axes.axhline(plain, color=GREEN, ls=":", lw=1.8, label="a walk without filter")
    axes.plot(
        100 * shares[is_scan],
        np.array(work)[is_scan],
        "s",
        color=ORANGE,
        ms=7,
        label="chosen: scan",
    )
    axes.plot(
        100 * shares[~is_scan],
        np.array(work)[~is_scan],
        "o",
        color=BLUE,
        ms=7,
        label="chosen: walk",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(8, 3e4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    axes.set_xlabel(f"share of {n:,} vectors that pass, at random")
    axes.set_ylabel("work of a query,\nin vectors scored")
    axes.legend(loc="lower right", fontsize=9)
    axes.grid(color="#eeeeee")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "graph": draw_graph,
    "learning": draw_learning,
    "slack": draw_slack,
    "budget": draw_budget,
    "codes": draw_codes,
    "filters": draw_filters,
}


def main() -> None:
    """Draw all figures, or those that are named."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/concepts.md.")
    parser.add_argument("--out", type=Path, default=DOCS / "images", help="where to write them")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FIGURES)}; all by default")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name in given.names or FIGURES:
            target = given.out / f"{name}.svg"
            FIGURES[name]().savefig(target, facecolor="white", metadata={"Date": None})
            print(target)


if __name__ == "__main__":
    main()
