"""Laws of all methods behind the protocol, and of their registry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.evaluation.compare import peers
from l2route.evaluation.compare.methods import METHODS, Entry, Routed, select
from l2route.evaluation.compare.peers import Annoy, FaissHnsw, Hnswlib, Usearch
from l2route.evaluation.compare.protocol import Method, knob_for
from l2route.reproduce.plan import EXPERIMENTS, read_experiment

N, DIM, K = 400, 8, 10
COUNTS = ("l2route", "l2route-log", "l2route-learned", "l2route-pca64", "l2route-learned64")
COUNTS += ("faiss-hnsw", "annoy", "usearch")
"""Methods that count their distances."""


def make_data(metric: Metric = "l2") -> Dataset:
    """Vectors in general position, and queries near them."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(N, DIM)).astype(np.float32)
    query = base[:30] + 0.3 * rng.normal(size=(30, DIM)).astype(np.float32)
    return Dataset("small", base, query, metric=metric)


entries = pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, marks=pytest.mark.slow) if entry.method == "pynndescent" else entry
        for entry in METHODS
    ],
    ids=lambda entry: f"{entry.method} {entry.label}",
)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@entries
def test_every_method_finds_the_nearest(entry: Entry, metric: Metric) -> None:
    """At the largest working knob recall is high, for single queries and batches; knobs ascend."""
    data = make_wide_data(metric)
    method = entry.make(0, 0.01)
    if metric == "ip" and entry.method in ("faiss-nsg", "pynndescent"):
        with pytest.raises(ValueError, match="expected metric l2 or cosine"):
            method.build(data)
        return
    method.build(data)
    assert list(method.knobs) == sorted(set(method.knobs))
    set_hardest(method)
    found = method.search(data.query, K)
    assert found.shape == (len(data.query), K)
    assert found.dtype == np.int64
    assert (method.search(data.query[:1], K) == found[:1]).all()
    truth = exact_neighbors(data.base, data.query, K, metric).ids
    shares = [len(set(a) & set(b)) / K for a, b in zip(found, truth, strict=True)]
    is_coarse = metric == "ip" or entry.label == "reorder 40"  # few true distances at the end
    assert np.mean(shares) > (0.8 if is_coarse else 0.9)


@entries
def test_every_method_reports_its_costs(entry: Entry) -> None:
    """A method reports size, learning time and, if it counts, distances that grow with the knob."""
    data = make_wide_data("l2")
    method = entry.make(0, 0.01)
    method.build(data)
    learns = "learned" in entry.method or "log" in entry.method
    assert (method.learn_seconds > 0) == learns
    size = method.n_bytes()
    assert (size is None) == (entry.method == "pynndescent")
    assert size is None or size > data.base.nbytes / 2  # half floats at least
    method.set(method.knobs[0])
    few = method.count(data.query, K)
    set_hardest(method)
    many = method.count(data.query, K)
    assert (few is not None) == (many is not None) == (entry.method in COUNTS)
    if few is not None and many is not None:
        assert few.shape == (len(data.query),)
        assert 0 < few.mean() < many.mean() <= 1.5 * len(data.base)


def set_hardest(method: Method) -> None:
    """Set the largest knob that the method accepts."""
    for knob in reversed(method.knobs):
        try:
            method.set(knob)
        except ValueError:
            continue
        return
    pytest.fail("no knob in reach")


def make_wide_data(metric: Metric) -> Dataset:
    """Vectors with enough dimensions for all methods, and training queries."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1500, 64)).astype(np.float32) * np.linspace(1, 0.1, 64, dtype="f4")
    near = base[:230] + 0.1 * rng.normal(size=(230, 64)).astype(np.float32)
    return Dataset("wide", base, near[:30], learn=near[30:], metric=metric)


@pytest.mark.parametrize("learns", [True, False])
def test_a_served_index_may_be_narrower(learns: bool) -> None:
    """Codes of fewer dimensions, learned or by PCA, are reranked by half floats."""
    data = make_wide_data("l2")
    method = Routed("int8", learns=learns, dim=32, minutes=0.01)
    method.build(data)
    space = method.index.spaces[-1]
    assert (space.dim, str(space.rows.dtype)) == (32, "uint8")
    assert method.index.base.rows.dtype == np.float16
    method.set(900)
    counts = method.count(data.query, K)
    assert counts is not None
    assert (counts > K).all()
    assert (method.learn_seconds > 0) == learns
    with pytest.raises(ValueError, match="expected training queries"):
        method.build(make_data())


def test_annoy_counts_the_points_it_inspects() -> None:
    """The count of distances is the number of points that Annoy returns if asked for all."""
    method, data = Annoy(), make_data()
    method.build(data)
    method.set(50)
    counts = method.count(data.query, 1)
    assert counts is not None
    found = method.search(data.query, N)
    assert ((found >= 0).sum(axis=1) == counts).all()


@pytest.mark.parametrize("kind", [Annoy, FaissHnsw, Usearch])
def test_the_knob_for_a_budget_is_the_largest_within_it(kind: Any) -> None:
    """The next larger knob computes more than the budget, on average."""
    method, data = kind(), make_data()
    method.build(data)
    knob = knob_for(method, data.query, 1, 100)
    means = []
    for value in (knob, knob + 1):
        method.set(value)
        counts = method.count(data.query, 1)
        assert counts is not None
        means.append(counts.mean())
    assert means[0] <= 100 < means[1]


def test_a_budget_below_the_smallest_knob_is_refused() -> None:
    """Annoy inspects whole leaves, so that it cannot stay within one point."""
    method, data = Annoy(), make_data()
    method.build(data)
    with pytest.raises(ValueError, match="expected a method that can stay within 1, got"):
        knob_for(method, data.query, 1, 1)


def test_a_method_that_does_not_count_has_no_knob_for_a_budget() -> None:
    """A method that does not count is refused."""
    method, data = Hnswlib(), make_data()
    method.build(data)
    with pytest.raises(ValueError, match="counts its distances"):
        knob_for(method, data.query, 1, 100)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""

    def no_module(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(peers, "import_module", no_module)
    (entry,) = select("sota", ["annoy"])
    with pytest.raises(ImportError) as caught:
        entry.make(0, 1.0)
    assert str(caught.value) == "No module named 'annoy'; pip install \"l2route[bench]\""


def test_an_unknown_method_is_refused() -> None:
    """The error lists the methods of that command."""
    with pytest.raises(ValueError, match="expected a method of annoy, got 'guess'"):
        select("sota", ["annoy", "guess"])
    with pytest.raises(ValueError, match=r"expected a method of l2route, .*, got 'annoy'"):
        select("compare", ["annoy"])


def test_entries_are_distinct_and_used() -> None:
    """No two entries have the same name and label, and each is run by some command."""
    assert len({(entry.method, entry.label) for entry in METHODS}) == len(METHODS)
    assert all(entry.uses for entry in METHODS)
    assert {entry.method for entry in select("compare", ["usearch", "hnswlib"])} == {
        "usearch",
        "hnswlib",
    }


def test_experiments_and_registry_name_the_same_peers() -> None:
    """The peers of the experiments are those registered for `reproduce sota`, once each."""
    named = {
        method.peer for name in EXPERIMENTS for method in read_experiment(name).methods.values()
    }
    assert sorted(named - {None}) == [entry.method for entry in select("sota")]
