"""Laws of `RoutingIndex.learn`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from l2route import RoutingIndex, load
from l2route.data.truth import exact_neighbors
from l2route.training import run as running
from l2route.training.log import Event
from l2route.training.report import Contest
from learning import ENOUGH, OPTIONS, words


def test_index_learns_saves_and_searches(index: RoutingIndex, tmp_path: Path) -> None:
    """`learn` adds a space that searches use by default, and that is saved and loaded."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    rerank = np.int64(9)  # any integer type is accepted, and can be saved
    report = fresh.learn(
        data.learn, OPTIONS, rerank=rerank, steps=ENOUGH, log=tmp_path / "log.jsonl"
    )
    assert report.is_better
    assert [space.name for space in fresh.spaces] == ["original", "learned"]
    fresh.save(tmp_path / "learned.l2r")
    opened = load(tmp_path / "learned.l2r")
    assert opened.spaces[-1].rerank == 9
    first, second = (i.search(data.query, k=5, budget=96) for i in (fresh, opened))
    np.testing.assert_array_equal(first.ids, second.ids)
    assert (first.n_computed <= 96).all()
    plain = opened.search(data.query, k=5, budget=96, space="original")
    assert (plain.ids != first.ids).any()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == ENOUGH


def test_a_learned_space_is_replaced_only_by_a_better_one(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run has to beat the space of the first one too, compressed or not."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    assert fresh.learn(data.learn, budget=96, steps=ENOUGH).is_better
    learned = fresh.spaces[-1]
    again = fresh.learn(data.learn, budget=96, steps=20)
    assert [contest.rival for contest in again.contests] == ["original", "learned"]
    assert not again.is_better
    assert fresh.spaces[-1] is learned
    fresh.compress("int8")
    monkeypatch.setattr(Contest, "is_won", property(lambda _: True))
    third = fresh.learn(data.learn, budget=96, steps=20)
    assert [contest.rival for contest in third.contests] == ["original", "learned-int8"]
    assert [space.name for space in fresh.spaces] == ["original", "learned"]


def test_short_vectors_have_to_beat_the_original_ones(index: RoutingIndex) -> None:
    """A space of three dimensions is not kept if it loses to the original vectors."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    report = fresh.learn(data.learn, budget=96, dim=3, steps=30)
    against = {contest.rival: contest for contest in report.contests}
    assert against.keys() == {"pca3", "original"}
    assert against["original"].ours < 0.5 * against["original"].theirs
    assert not report.is_better
    assert [space.name for space in fresh.spaces] == ["original"]


def test_a_run_that_is_no_better_changes_nothing(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, validation queries and settings of the index stay the same."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    fresh.validate_with(data.query)
    fresh.setting(0.5)
    before, kept = fresh.info(), fresh.validation
    monkeypatch.setattr(running.Run, "share", lambda _: 1.0)  # takes no step
    assert not fresh.learn(data.learn, budget=96, steps=1).is_better
    assert fresh.info() == before
    assert fresh.validation is kept


def test_known_neighbours_are_given_by_label(index: RoutingIndex) -> None:
    """In a renumbered index, given neighbours lead to the same space as computed ones."""
    data = words()
    truth = exact_neighbors(data.base, data.learn, 1).ids
    learned = []
    for neighbors in (None, truth):
        renumbered = RoutingIndex(index.base, index.graph)
        renumbered.renumber()
        renumbered.learn(data.learn, budget=96, steps=ENOUGH, neighbors=neighbors)
        learned.append(renumbered.spaces[-1])
    assert learned[0].name == learned[1].name == "learned"
    np.testing.assert_array_equal(learned[0].rows, learned[1].rows)


def test_a_custom_model(index: RoutingIndex) -> None:
    """An nn.Module with two methods learns like the built-in ones; anything else is refused."""

    class Biases(nn.Module):
        """A learned bias per vertex."""

        def __init__(self) -> None:
            super().__init__()
            vectors = index.base.vectors().copy()
            self.rows = torch.from_numpy(vectors * 40)
            self.bias = nn.Parameter(torch.zeros(len(vectors)))

        def vertices(self) -> tuple[Tensor, Tensor]:
            """Vectors [n, dim] and biases [n]."""
            return self.rows, self.bias

        def queries(self, queries: Tensor) -> Tensor:
            """Queries unchanged [batch, dim]."""
            return queries

    fresh = RoutingIndex(index.base, index.graph)
    report = fresh.learn(words().learn, budget=96, model=Biases(), steps=5)
    assert report.n_steps == 5
    short = Biases()
    short.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="expected as many biases as rows"):
        fresh.learn(words().learn, budget=96, model=short, steps=5)
    with pytest.raises(ValueError, match="expected a model with the methods"):
        fresh.learn(words().learn, model=nn.Linear(2, 2), steps=5)


def test_a_query_map_that_is_not_affine_is_refused(index: RoutingIndex) -> None:
    """It is refused before the first step, or at the first validation after it became nonlinear."""

    class Bent(nn.Module):
        """A model that maps queries to themselves plus a multiple of their tanh."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.rows = torch.from_numpy(40 * index.base.vectors())
            self.share = nn.Parameter(torch.full((index.dim,), share))

        def vertices(self) -> tuple[Tensor, Tensor]:
            """Constant vectors and biases."""
            return self.rows, torch.zeros(len(self.rows))

        def queries(self, queries: Tensor) -> Tensor:
            """Not affine, unless the factor is 0."""
            return queries + self.share * torch.tanh(10 * queries)

    events, queries = list[Event](), words().learn[:1000]
    with pytest.raises(ValueError, match=r"expected an affine query map, .* got one of .*Bent"):
        index.learn(queries, OPTIONS, model=Bent(0.1), on_event=events.append)
    with pytest.raises(ValueError, match=r"expected an affine query map, .* got one of .*Bent"):
        index.learn(queries, OPTIONS, model=Bent(0.0), learning_rate=0.1, on_event=events.append)
    assert events == []


def test_bad_queries_are_refused(index: RoutingIndex) -> None:
    """Too few queries, or of another dimension, are refused before any work."""
    with pytest.raises(ValueError, match="expected at least 20 distinct queries, got 1 among 50"):
        index.learn(np.ones((50, 50)))
    with pytest.raises(ValueError, match=r"expected queries \[\*, 50\], got \[\*, 3\]"):
        index.learn(np.ones((50, 3)))
    with pytest.raises(ValueError, match="expected dim of at most 50, got 60"):
        index.learn(words().learn, dim=60, steps=1)


def test_serving_needs_no_torch() -> None:
    """Importing, loading and searching never import torch."""
    script = """
import sys
import numpy as np
import l2route
import l2route.cli.app
l2route.RoutingIndex.build(np.random.default_rng(0).normal(size=(50, 4))).search(np.ones((2, 4)))
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
