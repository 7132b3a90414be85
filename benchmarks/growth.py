"""How the cost of learning grows with vertices and with queries: time and memory.

    python benchmarks/growth.py                                   # 10K and 100K vertices
    python benchmarks/growth.py --vertices 10000 100000 1000000   # seven minutes, mostly building

Synthetic vectors near a curved surface of 16 dimensions, in an NSW graph (degree 16, efConstruction
60). A row is one run of the filter in a process of its own: time for exact neighbours of the
queries, features of the vertices, hops to 512 targets, a step of 500 walks at a budget of 256, a
validation; and peak memory. Times are wall-clock times on --threads threads. Base vectors are not
used as training queries.
"""

import argparse
from itertools import product

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.models.collapse import space_of
from l2route.models.features import vertex_features
from l2route.search.space import original_space
from l2route.training.options import LearnOptions
from l2route.training.oracle import BLOCK_TARGETS, HopOracle
from l2route.training.problem import CHOOSING, pose
from l2route.training.run import FILTER_WALKS
from l2route.training.start import calibrate_sharpness, make_model
from measuring import peak_mb, print_table, timed
from rollouts import walks_per_second

INNER_DIM = 16
HEADINGS = (
    "vertices",
    "queries",
    "neighbours s",
    "features s",
    "hops s per 512",
    "ms per step",
    "validation s",
    "peak MB",
    "of it index MB",
)


def synthetic(n: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Vectors near a curved surface of 16 dimensions."""
    rng = np.random.default_rng(0)
    frame, bend = rng.normal(size=(2, INNER_DIM, dim)).astype(np.float32)
    inner = np.random.default_rng(seed).normal(size=(n, INNER_DIM)).astype(np.float32)
    return inner @ frame + 0.5 * np.sin(2 * inner) @ bend


def rows(n: int, n_queries: int, arguments: argparse.Namespace) -> list[list[str]]:
    """Measure one run, which is one row."""
    base = synthetic(n, arguments.dim, 1)
    index = RoutingIndex.build(
        base, degree=16, ef_construction=60, entry=0, graph="nsw", refine=False
    )
    queries = synthetic(n_queries, arguments.dim, 2)
    built = peak_mb()
    options = LearnOptions(budget=256, n_threads=arguments.threads, learns_from_base=False)
    neighbours, problem = timed(lambda: pose(index.graph, index.base, queries, options))
    features, _ = timed(lambda: vertex_features(index.graph, base))
    oracle = HopOracle(index.graph, problem.targets[:BLOCK_TARGETS].ravel())
    hops, _ = timed(lambda: oracle.prefetch([0]))
    goals, plain = options.goals, original_space(index.base)
    model = make_model(problem, options, goals, plain, calibrate_sharpness(problem, goals))
    speed = walks_per_second(problem, model, options, FILTER_WALKS, arguments.repeats)
    validation, _ = timed(
        lambda: problem.recalls(
            space_of(model, index.dim, index.dim, problem.scale, goals[0].rerank),
            goals[0],
            CHOOSING,
            arguments.threads,
        )
    )
    per_step = 1000 * FILTER_WALKS / speed
    seconds = (f"{cell:.3g}" for cell in (neighbours, features, hops, per_step, validation))
    return [[f"{n:,}", f"{n_queries:,}", *seconds, f"{peak_mb():,.0f}", f"{built:,.0f}"]]


def main() -> None:
    """Print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    sizes = product(arguments.vertices, arguments.queries)
    print_table(HEADINGS, rows, ((n, n_queries, arguments) for n, n_queries in sizes))


if __name__ == "__main__":
    main()
