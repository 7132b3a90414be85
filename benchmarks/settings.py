"""The effect of single options of learning: recall@1 on validation queries after some steps.

    python benchmarks/settings.py sift.npz --cell 256:8 --steps 800
    python benchmarks/settings.py glove100.npz --only "as it is" "no hubs"

A row is the filter with one option changed. The file holds `base` and `learn`; up to 5,000 queries
of `learn` are held out, and the recalls are of half of them (standard error 0.01 if there are
5,000). Test queries are not used.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.training.options import LearnOptions
from l2route.training.train import train

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no base vectors as queries": {"learns_from_base": False},
    "no hubs": {"visits_per_weight": math.inf},
    "many hubs": {"visits_per_weight": 6.0},
    "few hubs": {"visits_per_weight": 240.0},
    "top-k as sharp as routing": {"topk_sharpness": 1.0},
    "top-k weighs a quarter": {"topk_weight": LearnOptions().topk_weight / 4},
    "top-k weighs four times": {"topk_weight": LearnOptions().topk_weight * 4},
    "temperature 1": {"temperature": 1.0},
    "temperature 0.1": {"temperature": 0.1},
    "step size 3e-3": {"learning_rate": 3e-3},
    "step size 3e-4": {"learning_rate": 3e-4},
}


def main() -> None:
    """Print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cell", default="256:8", help="budget and rerank")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    budget, rerank = (int(part) for part in arguments.cell.split(":"))
    options = LearnOptions(budget=budget, rerank=rerank, steps=arguments.steps, seed=arguments.seed)
    data = Dataset.read(arguments.data)
    index = RoutingIndex.build(
        data.base, data.metric, degree=16, entry=0, graph="nsw", refine=False
    )
    print(f"{data.name}, budget {budget}, rerank {rerank}, {arguments.steps} steps")
    print("| setting | plain | learned | seconds |\n|---|---|---|---|", flush=True)
    with TemporaryDirectory() as cache:  # true neighbours and hops are computed once
        for name in arguments.only:
            changed = replace(options, **VARIANTS[name])
            _, report = train(index.graph, index.base, data.learn, changed, cache=Path(cache))
            figures = f"{report.plain:.3f} | {report.learned:.3f} | {report.seconds:.0f}"
            print(f"| {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
