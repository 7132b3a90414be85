"""The module for ann-benchmarks and VIBE, run by a stand-in of their runners."""

from __future__ import annotations

import itertools
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from l2route.cli import main
from l2route.contrib.annbench import METRICS, L2Route, write_module
from l2route.truth import exact_neighbors

N, DIM, K = 800, 24, 10


def draw(n: int, seed: int) -> NDArray[np.float32]:
    """Normal vectors."""
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def recall_of(found: Any, truth: NDArray[np.int64]) -> float:
    """Share of the true neighbours that were found."""
    pairs = zip(found, truth, strict=True)
    return float(np.mean([len(set(map(int, a)) & set(map(int, b))) / K for a, b in pairs]))


def definitions(directory: Path, metric: str) -> list[tuple[str, list[Any], list[list[Any]]]]:
    """Constructor, arguments and lists of query arguments, as ann-benchmarks reads its files."""
    config = yaml.safe_load((directory / "config.yml").read_text())
    found = []
    for entry in config["float"].get("any", []) + config["float"][metric]:
        assert entry["docker_tag"] == "ann-benchmarks-l2route"
        assert entry["module"].startswith("ann_benchmarks.algorithms.")
        base = [metric if arg == "@metric" else arg for arg in entry["base_args"]]
        for group in entry["run_groups"].values():
            queries = [list(args) for args in itertools.product(*group["query_args"])]
            found += [
                (entry["constructor"], [*base, *args], queries)
                for args in itertools.product(*group["args"])
            ]
    return found


def load_module(directory: Path) -> Any:
    """module.py, imported from where it is."""
    spec = spec_from_file_location("module_of_l2route", directory / "module.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("metric", "n_groups"), [("euclidean", 2), ("angular", 2), ("ip", 1)])
def test_a_runner_finds_and_runs_it(tmp_path: Path, metric: str, n_groups: int) -> None:
    """Every configuration is built, and asked one query at a time and in batches.

    It does better the harder it searches; what it is called tells all of its parameters.
    """
    write_module(tmp_path)
    module, base, queries = load_module(tmp_path), draw(N, 0), draw(40, 1)
    truth = exact_neighbors(base, queries, K, METRICS[metric]).ids
    names = set()
    every = definitions(tmp_path, metric)
    assert len(every) == n_groups
    for constructor, args, query_args in every:
        algo = getattr(module, constructor)(*args)
        algo.fit(base)
        assert algo.get_memory_usage() > base.nbytes / 1024 / 2
        recalls = []
        for arguments in query_args:
            algo.set_query_arguments(*arguments)
            single = [algo.query(query, K) for query in queries]
            algo.batch_query(queries, K)
            np.testing.assert_array_equal(algo.get_batch_results(), single)
            recalls.append(recall_of(single, truth))
            names.add(str(algo))
            assert algo.get_additional() == {}
        assert recalls[-1] > 0.9
        assert recalls[0] < recalls[-1]
        algo.done()
    assert len(names) == sum(len(query_args) for _, _, query_args in every)
    assert "FROM ann-benchmarks" in (tmp_path / "Dockerfile").read_text()


@pytest.mark.parametrize("metric", ["cosine", "ip", "normalized"])
def test_vibe_gives_it_queries(metric: str) -> None:
    """`fit_ood` learns from them; inner products are searched with a beam."""
    base, learn, queries = draw(N, 0), draw(200, 1), draw(30, 2)
    neighbors = exact_neighbors(base, learn, 100, METRICS[metric]).ids
    algo = L2Route(metric, {"minutes": 0.02, "recall": 0.8})
    algo.fit_ood(base, learn, neighbors)
    assert algo.index.validation is not None  # kept from the queries it was given
    algo.set_query_arguments(100 if metric == "ip" else 0.3)
    found = [algo.query(query, K) for query in queries]
    assert recall_of(found, exact_neighbors(base, queries, K, METRICS[metric]).ids) > 0.8


def test_floats_are_searched_too() -> None:
    """Without codes, routing scores are true and nothing is reranked."""
    base = draw(N, 0)
    algo = L2Route("euclidean", {"routing": "float32"})
    algo.fit(base)
    algo.set_query_arguments(60)
    assert algo.query(base[5], 3)[0] == 5


def test_wrong_parameters_are_refused() -> None:
    """All that is known is said."""
    with pytest.raises(ValueError, match=r"expected a metric of euclidean, .*, got 'hamming'"):
        L2Route("hamming")
    with pytest.raises(ValueError, match=r"expected parameters of graph, .*, got speed"):
        L2Route("euclidean", {"speed": 11})


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files, in a directory that may be new; all metrics can be run."""
    monkeypatch.setattr(sys, "argv", ["l2route", "export", "annbench", "-o", str(tmp_path / "a")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["Dockerfile", "config.yml", "module.py"]
    assert all(definitions(tmp_path / "a", metric) for metric in METRICS)
