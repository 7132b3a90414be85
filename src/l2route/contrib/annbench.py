"""l2route as ann-benchmarks and VIBE run it: a class of their convention, and the files beside it.

`write_module` makes a directory to drop into `ann_benchmarks/algorithms`, or VIBE's
`vibe/algorithms`.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from l2route.atomic import replacing
from l2route.compression import Compression
from l2route.data import Metric
from l2route.index import RoutingIndex

METRICS: dict[str, Metric] = {
    "euclidean": "l2",
    "angular": "cosine",
    "cosine": "cosine",
    "normalized": "cosine",
    "ip": "ip",
}
"""What they call ours."""
DEFAULTS: dict[str, Any] = {
    "graph": "nsw",
    "degree": 32,
    "ef_construction": 300,
    "routing": "int8",
    "dim": None,
    "minutes": 10.0,
    "recall": 0.9,
    "k": 10,
}
"""Parameters of a build; the last four are those of learning, where there are queries for it."""


class L2Route:
    """An index that is built by `fit`, or by `fit_ood` where there are queries to learn from.

    Args:
        metric: one of METRICS.
        params: parameters of the build in place of DEFAULTS.
    """

    def __init__(self, metric: str, params: dict[str, Any] | None = None) -> None:
        if metric not in METRICS:
            raise ValueError(f"expected a metric of {', '.join(METRICS)}, got {metric!r}")
        unknown = sorted(set(params or {}) - set(DEFAULTS))
        if unknown:
            known = ", ".join(DEFAULTS)
            raise ValueError(f"expected parameters of {known}, got {', '.join(unknown)}")
        self.metric, self.params = metric, DEFAULTS | (params or {})
        self.width, self.rerank = 0.0, 0
        self.results: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)

    def fit(self, train: NDArray[Any]) -> None:
        """Index the vectors."""
        self._compress(self._built(train))

    def fit_ood(self, train: NDArray[Any], learn: NDArray[Any], neighbors: NDArray[Any]) -> None:
        """Index the vectors and learn from queries with their nearest neighbours among them."""
        index, params = self._built(train), self.params
        index.learn(
            learn,
            dim=params["dim"],
            minutes=params["minutes"],
            k=params["k"],
            recall=params["recall"],
            neighbors=neighbors,
            n_threads=1,
        )
        self._compress(index)

    def _built(self, vectors: NDArray[Any]) -> RoutingIndex:
        index = RoutingIndex.build(
            vectors,
            METRICS[self.metric],
            graph=self.params["graph"],
            degree=self.params["degree"],
            ef_construction=self.params["ef_construction"],
            entry="medoids" if self.params["graph"] == "nsw" else "medoid",
        )
        if index.base.metric != "ip":
            index.refine(n_threads=1)
        return index

    def _compress(self, index: RoutingIndex) -> None:
        index.renumber()
        if self.params["routing"] != "float32":
            index.compress(cast(Compression, self.params["routing"]), "float16")
        self.index = index

    def set_query_arguments(self, width: float, rerank: int = 0) -> None:
        """How hard to search.

        Args:
            width: below 1 a slack, from 1 on a beam width; inner products know beams only.
            rerank: true distances at the end; 0 for twice as many as answers.
        """
        self.width, self.rerank = width, rerank

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Ids of the n nearest of one query."""
        found: NDArray[np.int64] = self._search(q[None], n)[0]
        return found

    def batch_query(self, queries: NDArray[Any], n: int) -> None:
        """Find the n nearest of all queries, for `get_batch_results`."""
        self.results = self._search(queries, n, n_threads=0)

    def get_batch_results(self) -> NDArray[np.int64]:
        """What `batch_query` found [n_queries, n]."""
        return self.results

    def _search(self, queries: NDArray[Any], n: int, n_threads: int = 1) -> NDArray[np.int64]:
        is_beam = self.width >= 1
        return self.index.search(
            queries,
            n,
            ef=int(self.width) if is_beam else None,
            slack=None if is_beam else float(self.width),
            rerank=max(n, self.rerank or 2 * n) if self._reranks else None,
            n_threads=n_threads,
        ).ids

    @property
    def _reranks(self) -> bool:
        return self.index.searcher().reranks

    def get_memory_usage(self) -> float | None:
        """Kilobytes of the index."""
        return self.index.n_bytes / 1024

    def get_additional(self) -> dict[str, Any]:
        """Nothing beyond what runners measure."""
        return {}

    def done(self) -> None:
        """Let go of the index."""
        del self.index

    def __str__(self) -> str:
        changed = {key: self.params[key] for key in DEFAULTS}
        said = ", ".join(f"{key}={value}" for key, value in changed.items())
        return f"l2route({said}, width={self.width:g}, rerank={self.rerank})"


MODULE = '''"""l2route; the class comes with the package."""

from l2route.contrib.annbench import L2Route

__all__ = ["L2Route"]
'''
CONFIG = """float:
  euclidean: &distances
  - &l2route
    base_args: ['@metric']
    constructor: L2Route
    disabled: false
    docker_tag: ann-benchmarks-l2route
    module: ann_benchmarks.algorithms.l2route
    name: l2route
    run_groups:
      int8:
        args: [[{routing: int8}]]
        query_args: [[0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2]]
      int4:
        args: [[{routing: int4}]]
        query_args: [[0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2], [30, 60]]
  angular: *distances
  cosine: *distances
  normalized: *distances
  ip:
  - <<: *l2route
    run_groups:
      int8:
        args: [[{routing: int8}]]
        query_args: [[10, 20, 40, 80, 160, 320, 640]]
"""
DOCKERFILE = """FROM ann-benchmarks

RUN pip3 install "l2route[train]"
RUN python3 -c "from l2route.contrib.annbench import L2Route"
"""


def write_module(directory: Path) -> None:
    """Write module.py, config.yml and Dockerfile, as ann-benchmarks looks for them."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {"module.py": MODULE, "config.yml": CONFIG, "Dockerfile": DOCKERFILE}
    for name, content in files.items():
        with replacing(directory / name) as beside:
            beside.write_text(content, encoding="utf-8")
