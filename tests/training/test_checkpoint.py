"""Laws of checkpoints: a run is resumed exactly, and only the same run."""

import json
import subprocess
import sys
import time
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from l2route import RoutingIndex, load
from l2route.graph.graph import Graph, UpperLayer
from l2route.training import problem as posing
from l2route.training.checkpoint import Origin, read_sizes, write_checkpoint
from l2route.training.loop import learn_space
from l2route.training.oracle import HopOracle
from l2route.training.problem import Problem, Sizes
from l2route.training.rollout import batches
from learning import OPTIONS, words


def test_a_killed_run_resumes_with_the_same_losses(index: RoutingIndex, tmp_path: Path) -> None:
    """A run killed with SIGKILL and started again has the losses of an uninterrupted run."""
    index.save(tmp_path / "index.l2r")
    np.save(tmp_path / "queries.npy", words().learn[:1000])

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "l2route", "learn", "index.l2r", "-o", f"{name}.l2r"]
        files = ["--queries", "queries.npy", "--log", f"{name}.log", "--checkpoint", f"{name}.pt"]
        return subprocess.Popen(
            [*command, *files, "--steps", "200", "--budget", "96"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )

    def events(name: str) -> list[dict[str, float]]:
        path = tmp_path / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    with start("cut") as process:
        while len(events("cut")) < 3:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    n_before = len(events("cut"))
    assert n_before < 20
    with start("cut") as again, start("whole") as whole:
        assert again.wait() == 0
        assert whole.wait() == 0
    cut, uncut = ([without_clock(event) for event in events(name)] for name in ("cut", "whole"))
    assert cut[n_before:] == uncut[-len(cut[n_before:]) :]
    assert 0 < len(cut[n_before:]) < 20
    same = [load(tmp_path / f"{name}.l2r").spaces[-1].rows for name in ("cut", "whole")]
    np.testing.assert_array_equal(same[0], same[1])


def without_clock(event: dict[str, float]) -> dict[str, float]:
    """A logged event without its times."""
    return {name: value for name, value in event.items() if not name.startswith("seconds")}


def test_a_foreign_checkpoint_is_refused(problem: Problem, tmp_path: Path) -> None:
    """A checkpoint of other options or queries, or a file that is none, is refused by name."""
    state = tmp_path / "state"
    learn_space(problem, replace(OPTIONS, steps=2), checkpoint=state)
    with pytest.raises(ValueError, match="expected a run with the same options"):
        learn_space(problem, replace(OPTIONS, steps=3), checkpoint=state)
    other = replace(problem, train=problem.train[::-1].copy())
    with pytest.raises(ValueError, match="expected the same graph, vectors and queries"):
        learn_space(other, replace(OPTIONS, steps=2), checkpoint=state)
    layer = UpperLayer(np.array([0], np.int32), np.array([[-1]], np.int32))
    taller = replace(problem, graph=replace(problem.graph, upper=(layer,)))
    with pytest.raises(ValueError, match="expected the same graph, vectors and queries"):
        learn_space(taller, replace(OPTIONS, steps=2), checkpoint=state)
    state.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="expected a checkpoint"):
        learn_space(problem, OPTIONS, checkpoint=state)
    state.unlink()
    state.mkdir()
    with pytest.raises(ValueError, match="expected a regular file, got a directory"):
        learn_space(problem, OPTIONS, checkpoint=state)


class Scaled(nn.Module):
    """A learned bias per vertex, and `n_weights` parameters that do not affect scores."""

    def __init__(self, problem: Problem, n_weights: int = 1) -> None:
        super().__init__()
        vectors = problem.base.vectors() * np.float32(40 * problem.scale)
        self.rows = torch.from_numpy(vectors)
        self.bias = nn.Parameter(torch.zeros(len(vectors)))
        self.weights = nn.Parameter(torch.zeros(n_weights))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, dim] and biases [n]."""
        return self.rows, self.bias + self.weights.sum()

    def queries(self, queries: Tensor) -> Tensor:
        """Queries unchanged [batch, dim]."""
        return queries


class Renamed(Scaled):
    """The same model under another class name."""


def test_a_checkpoint_of_another_model_is_refused(problem: Problem, tmp_path: Path) -> None:
    """The class and the parameter shapes have to agree; the error names both."""
    state, options = tmp_path / "state", replace(OPTIONS, steps=2)
    learn_space(problem, options, Scaled(problem), checkpoint=state)
    learn_space(problem, options, Scaled(problem), checkpoint=state)
    here = __name__
    with pytest.raises(
        ValueError, match=f"{state}: expected a checkpoint of {here}.Renamed, got one of {here}.Sca"
    ):
        learn_space(problem, options, Renamed(problem), checkpoint=state)
    with pytest.raises(
        ValueError,
        match=rf"checkpoint of {here}.Scaled with .*'weights': \[3\]}}, got .*'weights': \[1\]}}",
    ):
        learn_space(problem, options, Scaled(problem, 3), checkpoint=state)
    with pytest.raises(
        ValueError, match=f"checkpoint of l2route.*GraphFilter, got one of {here}.Scaled"
    ):
        learn_space(problem, options, checkpoint=state)
    state.unlink()
    learn_space(problem, options, checkpoint=state)
    ffn = replace(options, model="ffn", hidden_dim=4)
    with pytest.raises(ValueError, match=r"checkpoint of .*FeedForward, got one of .*GraphFilter"):
        learn_space(problem, ffn, checkpoint=state)


def test_resuming_computes_no_hops_for_finished_batches(
    graph: Graph, count_computed: list[int]
) -> None:
    """A resumed run draws the remaining batches, and computes only the blocks that they need."""
    targets = np.random.default_rng(0).permutation(1200)

    def oracle() -> HopOracle:
        return HopOracle(graph, targets, max_blocks=1, n_threads=1)

    sizes = (len(targets), 64, 1)
    whole = list(islice(batches(oracle(), *sizes, seed=1), 60))
    block_of = oracle().places.block_of
    blocks = np.array([block_of[batch[0]] for batch in whole])
    for first in (0, 1, 15, 37):
        count_computed.clear()
        rest = list(islice(batches(oracle(), *sizes, seed=1, first=first), 60 - first))
        for got, expected in zip(rest, whole[first:], strict=True):
            np.testing.assert_array_equal(got, expected)
        assert len(count_computed) == 1 + np.count_nonzero(np.diff(blocks[first:]))


def test_a_timed_run_resumes_with_the_same_training_queries(
    index: RoutingIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint has the number of queries, which a resumed run does not measure again."""
    path = tmp_path / "state"
    fresh = RoutingIndex(index.base, index.graph)
    monkeypatch.setattr(posing, "TRAIN_TIME", 1e-9)
    first = fresh.learn(words().learn, budget=96, minutes=0.1, checkpoint=path)
    assert read_sizes(path).train == posing.N_PROBED
    monkeypatch.undo()
    again = fresh.learn(words().learn, budget=96, minutes=0.1, checkpoint=path)
    assert again.n_steps >= first.n_steps > 0
    assert again.seconds > first.seconds
    with pytest.raises(ValueError, match="expected a run with the same options"):
        fresh.learn(words().learn, budget=96, minutes=0.2, checkpoint=path)


def test_a_flipped_bit_in_a_checkpoint_is_detected(problem: Problem, tmp_path: Path) -> None:
    """A checkpoint with one flipped bit in a tensor is refused."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    intact = path.read_bytes()
    kept = torch.load(path, weights_only=True)["state"]["kept"]
    largest = max(kept, key=Tensor.numel).numpy().tobytes()
    begin = intact.index(largest)
    for at in np.random.default_rng(0).integers(0, len(largest), size=5):
        damaged = bytearray(intact)
        damaged[begin + int(at)] ^= 1 << int(at) % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected an intact checkpoint"):
            learn_space(problem, options, checkpoint=path)


def origin_of(content: dict[str, Any]) -> tuple[Origin, Sizes]:
    """The run that a checkpoint belongs to, and its sizes."""
    origin = Origin(**{each.name: content[each.name] for each in fields(Origin)})
    return origin, Sizes(**content["sizes"])


FORGED: list[tuple[str, Any]] = [
    ("step", 10**9),
    ("step", -1),
    ("step", None),
    ("step", 1.5),
    ("window", 0),
    ("window", 10**9),
    ("share", float("nan")),
    ("share", 2.0),
    ("peak", float("inf")),
    ("peak", "high"),
    ("spent", -1.0),
    ("parameters", []),
    ("average", None),
    ("kept", [torch.zeros(1)]),
    ("optimizer", {}),
]


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_forged_checkpoints_are_refused(
    problem: Problem, tmp_path: Path, name: str, value: object
) -> None:
    """A state with an impossible or missing value is refused, even if its digest is correct."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    content = torch.load(path, weights_only=True)
    state = content["state"] | {name: value}
    made_by = origin_of(content)
    write_checkpoint(path, state, *made_by)
    with pytest.raises(ValueError, match=f"{path}: expected"):
        learn_space(problem, options, checkpoint=path)
    del state[name]
    write_checkpoint(path, state, *made_by)
    with pytest.raises(ValueError, match=f"{path}: expected a state of this model"):
        learn_space(problem, options, checkpoint=path)


def test_the_recall_of_a_checkpoint_is_measured_again(problem: Problem, tmp_path: Path) -> None:
    """A resumed run does not trust a stored recall: spoiled weights are reported as worse."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    content = torch.load(path, weights_only=True)
    spoiled = [100 * torch.randn_like(each) for each in content["state"]["kept"]]
    write_checkpoint(path, content["state"] | {"kept": spoiled}, *origin_of(content))
    _, report = learn_space(problem, options, checkpoint=path)
    assert report.learned < 0.5 * report.plain
    assert not report.is_better
