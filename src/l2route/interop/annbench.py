"""Adapter for ann-benchmarks and VIBE: the class that they call, and their configuration files.

`write_module` writes a directory that goes into `ann_benchmarks/algorithms`, or into VIBE's
`vibe/algorithms`, under the name l2route.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.files.atomic import replace_text
from l2route.index import RoutingIndex
from l2route.recipe.steps import Recipe, prepare

METRICS: dict[str, Metric] = {
    "euclidean": "l2",
    "angular": "cosine",
    "cosine": "cosine",
    "normalized": "cosine",
    "ip": "ip",
}
"""l2route's metric for each metric of the runners."""
DEFAULTS: dict[str, Any] = {
    "graph": "l2route",
    "degree": 32,
    "ef_construction": None,
    "routing": "int8",
    "dim": None,
    "minutes": 10.0,
    "recall": 0.9,
    "k": 10,
}
"""Parameters of a build; the last four are for learning, if there are training queries."""
DEFAULT_WIDTH, DEFAULT_RERANK = 100.0, 2
"""Beam width, and true distances per answer, before `set_query_arguments` is called."""


class L2Route:
    """An index built by `fit`, or by `fit_ood` if there are training queries.

    Args:
        metric: one of METRICS.
        params: parameters of the build that differ from DEFAULTS.
    """

    def __init__(self, metric: str, params: dict[str, Any] | None = None) -> None:
        if metric not in METRICS:
            raise ValueError(f"expected a metric of {', '.join(METRICS)}, got {metric!r}")
        unknown = sorted(set(params or {}) - set(DEFAULTS))
        if unknown:
            known = ", ".join(DEFAULTS)
            raise ValueError(f"expected parameters of {known}, got {', '.join(unknown)}")
        self.metric, self.params = metric, DEFAULTS | (params or {})
        self.width, self.rerank = DEFAULT_WIDTH, DEFAULT_RERANK
        self.index: RoutingIndex | None = None
        self.prepared: tuple[NDArray[Any], int] = (np.zeros((0, 0), dtype=np.float32), 0)
        self.results: Sequence[NDArray[np.int64]] = ()

    def fit(self, train: NDArray[Any]) -> None:
        """Index the vectors [n, dim]."""
        self.index = prepare(train, self._recipe)

    def fit_ood(self, train: NDArray[Any], learn: NDArray[Any], neighbors: NDArray[Any]) -> None:
        """Index the vectors, and learn from queries with known neighbours.

        Args:
            train: base vectors [n, dim].
            learn: training queries [n_queries, dim].
            neighbors: their true neighbours, row numbers of `train` [n_queries, at least k].
        """
        params = self.params

        def learned(index: RoutingIndex) -> RoutingIndex:
            index.learn(
                learn,
                dim=params["dim"],
                minutes=params["minutes"],
                k=params["k"],
                recall=params["recall"],
                neighbors=neighbors,
                n_threads=1,
            )
            return index

        self.index = prepare(train, self._recipe, learn=learned)

    @property
    def _recipe(self) -> Recipe:
        names = ("graph", "degree", "ef_construction", "routing")
        return Recipe(
            metric=METRICS[self.metric], n_threads=1, **{name: self.params[name] for name in names}
        )

    def set_query_arguments(self, width: float, rerank: int = DEFAULT_RERANK) -> None:
        """Set the effort of a search.

        Args:
            width: a slack if below 1, else a beam width; for inner products always a beam width.
            rerank: true distances at the end, per answer.
        """
        self.width, self.rerank = width, rerank

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the ids of the n nearest neighbours of a query [dim]; fewer if fewer are found."""
        return self._search(q[None], n, n_threads=1)[0]

    def batch_query(self, queries: NDArray[Any], n: int) -> None:
        """Find the n nearest neighbours of queries [n_queries, dim], for `get_batch_results`."""
        self.results = self._search(queries, n, n_threads=0)

    def get_batch_results(self) -> Sequence[NDArray[np.int64]]:
        """Return the answers of the last batch, an array of ids for each query."""
        return self.results

    def prepare_query(self, q: NDArray[Any], n: int) -> None:
        """Convert a query to the index's format, for `run_prepared_query`."""
        self.prepare_batch_query(q[None], n)

    def run_prepared_query(self) -> None:
        """Search for the prepared query, for `get_prepared_query_results`."""
        self.results = self._search(*self.prepared, n_threads=1)

    def get_prepared_query_results(self) -> NDArray[np.int64]:
        """Return the ids that the prepared query found."""
        return self.results[0]

    def prepare_batch_query(self, queries: NDArray[Any], n: int) -> None:
        """Convert queries to the index's format, for `run_batch_query`."""
        self.prepared = np.ascontiguousarray(queries, dtype=np.float32), n

    def run_batch_query(self) -> None:
        """Search for the prepared queries, for `get_batch_results`."""
        self.results = self._search(*self.prepared, n_threads=0)

    def _search(self, queries: NDArray[Any], n: int, n_threads: int) -> list[NDArray[np.int64]]:
        if self.index is None:
            raise RuntimeError("expected fit before a query, got no index")
        is_beam = self.width >= 1
        found = self.index.search(
            queries,
            n,
            ef=int(self.width) if is_beam else None,
            slack=None if is_beam else float(self.width),
            rerank=self.rerank * n,
            n_threads=n_threads,
        ).ids
        return [ids[ids >= 0] for ids in found]  # runners look up every id, so -1 would fail

    def get_memory_usage(self) -> float:
        """Return the size of the index in kilobytes; 0 before `fit`, when runners call it too."""
        return 0.0 if self.index is None else self.index.n_bytes / 1024

    def get_additional(self) -> dict[str, Any]:
        """Return an empty dict: there are no further figures."""
        return {}

    def done(self) -> None:
        """Free the index, if there is one: runners also call this after an error."""
        self.index = None

    def __str__(self) -> str:
        params = ", ".join(f"{key}={self.params[key]}" for key in DEFAULTS)
        return f"l2route({params}, width={self.width:g}, rerank={self.rerank})"


MODULE = '''"""l2route; the class comes with the package."""

from l2route.interop.annbench import L2Route

__all__ = ["L2Route"]
'''
Runner = Literal["ann-benchmarks", "vibe"]
RUNNERS: dict[Runner, dict[str, tuple[str, ...]]] = {
    "ann-benchmarks": {"float": ("euclidean", "angular")},
    "vibe": {
        "float": ("euclidean", "cosine", "normalized", "ip"),
        "uint8": ("euclidean", "cosine"),
        "int8": ("euclidean", "cosine"),
    },
}
"""Metrics of each runner, by the type of the vectors' elements."""
BY_SLACK = """
    run_groups:
      int8:
        arg_groups: [{routing: int8}]
        query_args: [[0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2]]
      int4:
        arg_groups: [{routing: int4}]
        query_args: [[0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2], [3, 6]]
"""
BY_BEAM = """
    run_groups:
      int8:
        arg_groups: [{routing: int8}]
        query_args: [[10, 20, 40, 80, 160, 320, 640]]
"""
ENTRY = """  {metric}:
  - base_args: ['@metric']
    constructor: L2Route
    disabled: false
    {image}
    module: {package}.algorithms.l2route
    name: l2route"""
DOCKERFILE = """# Put l2route's source into ann_benchmarks/algorithms/l2route/source first.
FROM ann-benchmarks

# The base image has Python 3.10; l2route needs 3.11.
RUN apt-get update && apt-get install -y python3.11 python3.11-dev python3.11-venv
RUN python3.11 -m venv /opt/l2route
ENV PATH=/opt/l2route/bin:$PATH
RUN pip install -r requirements.txt

COPY ann_benchmarks/algorithms/l2route/source /l2route
RUN pip install "/l2route[train]"
RUN python -c "from l2route.interop.annbench import L2Route"
"""
IMAGE = """# Put l2route's source into vibe/algorithms/l2route/source first.
Bootstrap: localimage
From: base.sif

%files
  ../vibe/algorithms/l2route/source /l2route

%post
  pip install --no-cache-dir "/l2route[train]"
  python -c "from l2route.interop.annbench import L2Route"
"""


def _config(runner: Runner) -> str:
    """Return config.yml; inner products, which have no slack, are searched by beam width."""
    if runner == "vibe":
        package, image = "vibe", "ood: true\n    singularity_image: l2route"
    else:
        package, image = "ann_benchmarks", "docker_tag: ann-benchmarks-l2route"
    parts = []
    for kind, metrics in RUNNERS[runner].items():
        parts.append(f"{kind}:\n")
        for metric in metrics:
            parts.append(ENTRY.format(metric=metric, image=image, package=package))
            parts.append(BY_BEAM if METRICS[metric] == "ip" else BY_SLACK)
    return "".join(parts)


def write_module(directory: Path, runner: Runner = "ann-benchmarks") -> None:
    """Write the files of a runner: module.py, config.yml and the definition of its image."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {"module.py": MODULE, "config.yml": _config(runner)}
    files |= {"image.def": IMAGE} if runner == "vibe" else {"Dockerfile": DOCKERFILE}
    for name, content in files.items():
        replace_text(directory / name, content)
