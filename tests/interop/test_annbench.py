"""The adapter for ann-benchmarks and VIBE, called as their runners call it."""

from __future__ import annotations

import itertools
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from l2route.cli.app import main
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import normalize
from l2route.interop.annbench import METRICS, RUNNERS, L2Route, Runner, write_module

N, DIM, K = 800, 24, 10
IMAGES = {"ann-benchmarks": "docker_tag", "vibe": "singularity_image"}
PACKAGES = {"ann-benchmarks": "ann_benchmarks.algorithms", "vibe": "vibe.algorithms"}


def draw(n: int, seed: int) -> NDArray[np.float32]:
    """Normal vectors [n, DIM]."""
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def recall_of(found: Any, truth: NDArray[np.int64]) -> float:
    """Share of the true neighbours that were found."""
    pairs = zip(found, truth, strict=True)
    return float(np.mean([len(set(map(int, a)) & set(map(int, b))) / K for a, b in pairs]))


def combinations(runner: Runner, group: dict[str, Any], kind: str) -> list[list[Any]]:
    """The arguments of a run group, as the runner derives them from its configuration.

    Both runners prefer `arg_groups` to `args`. In `args` VIBE takes the values of a mapping without
    their names, so mappings must be in `arg_groups`.
    """
    spec = group.get(f"{kind[:-1]}_groups", group.get(kind, []))
    listed = [each if isinstance(each, list) else [each] for each in spec]
    made = [list(each) for each in itertools.product(*listed)]
    if runner == "vibe" and f"{kind[:-1]}_groups" not in group:
        return [[list(x.values()) if isinstance(x, dict) else x for x in each] for each in made]
    return made


def definitions(
    directory: Path, runner: Runner, metric: str, kind: str = "float"
) -> list[tuple[Any, ...]]:
    """Constructor, arguments, lists of query arguments and `ood` of every configuration.

    Arguments pass through JSON, as they do on the way into a container.
    """
    config = yaml.safe_load((directory / "config.yml").read_text())[kind]
    found = []
    for entry in config.get("any", []) + config.get(metric, []):
        assert entry["name"] == "l2route"
        assert not entry["disabled"]
        assert entry[IMAGES[runner]]
        assert entry["module"] == f"{PACKAGES[runner]}.l2route"
        base = [metric if arg == "@metric" else arg for arg in entry["base_args"]]
        for group in entry["run_groups"].values():
            queries = combinations(runner, group, "query_args")
            for args in combinations(runner, group, "args"):
                arguments = json.loads(json.dumps([*base, *args]))
                found.append((entry["constructor"], arguments, queries, entry.get("ood", False)))
    return found


def load_module(directory: Path) -> Any:
    """Import module.py from a directory."""
    spec = spec_from_file_location("module_of_l2route", directory / "module.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(algo: Any, queries: NDArray[np.float32], count: int, batch: bool) -> list[Any]:
    """Answers as either runner requests them, with its checks."""
    if batch and hasattr(algo, "prepare_batch_query"):
        algo.prepare_batch_query(queries, count)
        algo.run_batch_query()
        answers = list(algo.get_batch_results())
    elif batch:
        algo.batch_query(queries, count)
        answers = list(algo.get_batch_results())
    else:
        answers = [ask_one(algo, query, count) for query in queries]
    if hasattr(algo, "get_batch_latencies") and batch:
        assert len(algo.get_batch_latencies()) == len(queries)
    assert len(answers) == len(queries)
    for answer in answers:
        assert len(answer) == len(set(answer)) <= count
        assert all(0 <= int(each) < N for each in answer)  # runners look up the vector of every id
        assert len(np.arange(N)[answer]) == len(answer)  # VIBE looks up those of all ids at once
    return answers


def ask_one(algo: Any, query: NDArray[np.float32], count: int) -> Any:
    """The answer to one query, as a prepared query if the class has them."""
    if not hasattr(algo, "prepare_query"):
        return algo.query(query, count)
    algo.prepare_query(query, count)
    algo.run_prepared_query()
    return algo.get_prepared_query_results()


def build(algo: Any, train: NDArray[Any], learn: Any = None, neighbors: Any = None) -> float:
    """Build, and return the size in kilobytes: the difference of memory before and after."""
    if hasattr(algo, "supports_prepared_queries"):
        algo.supports_prepared_queries()
    before = algo.get_memory_usage()
    if learn is None or neighbors is None:
        algo.fit(train)
    else:
        algo.fit_ood(train, learn, neighbors)
    return float(algo.get_memory_usage() - before)


def describe(algo: Any, batch: bool) -> dict[str, Any]:
    """Attributes that a runner stores with the answers; all must be valid in HDF5."""
    stored = {"batch_mode": batch, "name": str(algo), **algo.get_additional()}
    assert all(isinstance(value, str | int | float | bool) for value in stored.values())
    return stored


def run(
    algo: Any,
    base: NDArray[np.float32],
    queries: NDArray[np.float32],
    query_args: list[list[Any]],
    batch: bool,
    learned_from: tuple[Any, ...] = (),
) -> dict[str, list[Any]]:
    """Answers by the name of the run. Like ann-benchmarks, always call `done` at the end."""
    answers = {}
    try:
        size = build(algo, base, *learned_from)
        assert base.size * 4 / 1024 / 2 < size < 10 * base.size * 4 / 1024  # of floats
        for arguments in query_args or [[]]:
            if arguments:
                algo.set_query_arguments(*arguments)
            for _ in range(2):  # runners repeat queries
                found = ask(algo, queries, K, batch)
            answers[describe(algo, batch)["name"]] = found
    finally:
        algo.done()
    return answers


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("runner", "metric", "n_groups"),
    [
        ("ann-benchmarks", "euclidean", 2),
        ("ann-benchmarks", "angular", 2),
        ("vibe", "euclidean", 2),
        ("vibe", "cosine", 2),
        ("vibe", "normalized", 2),
        ("vibe", "ip", 1),
    ],
)
def test_a_runner_finds_and_runs_it(
    tmp_path: Path, runner: Runner, metric: str, n_groups: int, batch: bool
) -> None:
    """Every configuration can be built and searched, by single queries and by batches.

    The last query arguments find the most, and the name of a run has all parameters.
    """
    write_module(tmp_path, runner)
    module, base, queries = load_module(tmp_path), draw(N, 0), draw(40, 1)
    truth = exact_neighbors(base, queries, K, METRICS[metric]).ids
    every = definitions(tmp_path, runner, metric)
    assert len(every) == n_groups
    for constructor, args, query_args, is_ood in every:
        assert is_ood == (runner == "vibe")
        algo = getattr(module, constructor)(*args)
        answers = run(algo, base, queries, query_args, batch)
        assert len(answers) == len(query_args)
        recalls = [recall_of(found, truth) for found in answers.values()]
        assert recalls[-1] > 0.9
        assert recalls[0] < recalls[-1]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_vibe_gives_it_small_integers(tmp_path: Path, metric: str, kind: str) -> None:
    """Vectors and queries of bytes are read as the numbers that they are."""
    write_module(tmp_path, "vibe")
    shift = 128 if kind == "uint8" else 0
    base, queries = (
        np.clip(np.rint(40 * draw(n, seed)) + shift, shift - 127, shift + 127).astype(kind)
        for n, seed in ((N, 0), (40, 1))
    )
    floats = base.astype(np.float32), queries.astype(np.float32)
    truth = exact_neighbors(*floats, K, METRICS[metric]).ids
    every = definitions(tmp_path, "vibe", metric, kind)
    assert len(every) == 2
    for _, args, query_args, _ in every:
        (found,) = run(L2Route(*args), base, queries, query_args[-1:], False).values()
        assert recall_of(found, truth) > 0.9


@pytest.mark.parametrize("metric", RUNNERS["vibe"]["float"])
def test_vibe_gives_it_queries(tmp_path: Path, metric: str) -> None:
    """`fit_ood` learns from training queries and their neighbours in every configuration.

    Queries are distributed otherwise than the vectors. VIBE normalises both for its metric
    "normalized", and gives neighbours as it stores them: int32 or int64, 100 of each.
    """
    write_module(tmp_path, "vibe")
    base, learn, queries = draw(N, 0), draw(200, 1) / 2 + 0.5, draw(30, 2) / 2 + 0.5
    if metric == "normalized":
        base, learn, queries = (normalize(each) for each in (base, learn, queries))
    truth = exact_neighbors(base, queries, K, METRICS[metric]).ids
    neighbors = exact_neighbors(base, learn, 100, METRICS[metric]).ids
    for dtype, (_, args, query_args, is_ood) in zip(
        (np.int32, np.int64), definitions(tmp_path, "vibe", metric), strict=False
    ):
        assert is_ood
        algo = L2Route(args[0], args[1] | {"minutes": 0.01, "recall": 0.8})
        last = query_args[-1:]
        (found,) = run(algo, base, queries, last, False, (learn, neighbors.astype(dtype))).values()
        assert recall_of(found, truth) > 0.8


def test_it_is_asked_and_let_go_at_any_time() -> None:
    """`get_memory_usage` and `done` may be called before and after `fit`, and repeatedly."""
    algo = L2Route("euclidean", {"routing": "float32"})
    assert algo.get_memory_usage() == 0
    algo.done()
    with pytest.raises(RuntimeError, match="expected fit before a query"):
        algo.query(draw(1, 0)[0], 3)
    algo.fit(draw(N, 0))
    assert algo.get_memory_usage() > 0
    assert algo.query(draw(N, 0)[5], 3)[0] == 5  # before set_query_arguments
    algo.done()
    algo.done()
    assert algo.get_memory_usage() == 0
    assert algo.get_additional() == {}


def test_a_runner_is_done_after_an_error() -> None:
    """`done` after a failed build does not hide the error."""
    algo = L2Route("euclidean")
    with pytest.raises(ValueError, match="finite"):
        run(algo, np.full((N, DIM), np.nan, dtype=np.float32), draw(3, 1), [[0.1]], False)


def test_answers_that_are_not_found_are_left_out() -> None:
    """Missing answers are left out, because runners look up the vector of every id."""
    few = draw(4, 0)
    algo = L2Route("euclidean", {"routing": "float32"})
    algo.fit(few)
    assert sorted(algo.query(few[0], K)) == [0, 1, 2, 3]
    algo.batch_query(few, K)
    assert [sorted(answer) for answer in algo.get_batch_results()] == 4 * [[0, 1, 2, 3]]


def test_all_ways_of_asking_agree() -> None:
    """Single, prepared and batch queries give the same answers."""
    base, queries = draw(N, 0), draw(20, 1)
    algo = L2Route("angular")
    algo.fit(base.astype(np.float64))
    algo.set_query_arguments(0.1)
    single = [algo.query(query, K).tolist() for query in queries]
    prepared = [ask_one(algo, query, K).tolist() for query in queries]
    algo.batch_query(queries, K)
    batch = [answer.tolist() for answer in algo.get_batch_results()]
    assert single == prepared == batch == [a.tolist() for a in ask(algo, queries, K, batch=True)]


def test_wrong_parameters_are_refused() -> None:
    """The error for an unknown metric or parameter lists the known ones."""
    with pytest.raises(ValueError, match=r"expected a metric of euclidean, .*, got 'hamming'"):
        L2Route("hamming")
    with pytest.raises(ValueError, match=r"expected parameters of graph, .*, got speed"):
        L2Route("euclidean", {"speed": 11})


FILES: dict[Runner, list[str]] = {
    "ann-benchmarks": ["Dockerfile", "config.yml", "module.py"],
    "vibe": ["config.yml", "image.def", "module.py"],
}


@pytest.mark.parametrize(("command", "runner"), [("annbench", "ann-benchmarks"), ("vibe", "vibe")])
def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, runner: Runner
) -> None:
    """The command writes three files, with a configuration for each metric of the runner."""
    monkeypatch.setattr(sys, "argv", ["l2route", "export", command, "-o", str(tmp_path / "a")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == FILES[runner]
    for kind, metrics in RUNNERS[runner].items():
        assert all(definitions(tmp_path / "a", runner, metric, kind) for metric in metrics)
