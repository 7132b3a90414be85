"""Laws of `l2route.build`: the index and the report for all kinds of input."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l2route
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric
from l2route.recipe.report import BuildReport
from l2route.recipe.timing import Timed
from l2route.search import calibrate
from l2route.search.validation import CalibrationWarning

Vectors = NDArray[np.float32]
STEPS = ["build", "edges", "entries", "learn", "renumber", "compress", "stop"]


def draw(n: int, dim: int = 24, seed: int = 0) -> Vectors:
    """Normal vectors whose dimensions have different variances [n, dim]."""
    scale = np.linspace(1, 0.2, dim)
    return (np.random.default_rng(seed).normal(size=(n, dim)) * scale).astype(np.float32)


def recall_of(
    index: l2route.RoutingIndex, base: Vectors, metric: Metric, k: int, recall: float
) -> float:
    """Recall@k of new queries, searched with the setting that the index keeps."""
    queries = draw(300, base.shape[1], seed=9)
    truth = exact_neighbors(base, queries, k, metric).ids.tolist()
    found = index.search(queries, k, recall=recall).ids.tolist()
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found, truth, strict=True)]))


def note_of(report: BuildReport, step: str) -> str:
    """The note of a step in the report."""
    (note,) = (each.note for each in report.steps if each.name == step)
    assert note is not None
    return note


@pytest.mark.parametrize("metric", METRICS)
def test_it_is_ready_to_serve(metric: Metric) -> None:
    """New queries have the requested recall; the index keeps the setting of the report."""
    base = draw(2000)
    queries = draw(400, seed=1)
    index, report = l2route.build(base, queries, metric=metric, minutes=0.05, routing="int8")
    assert recall_of(index, base, metric, 10, 0.95) == pytest.approx(0.95, abs=0.04)
    (kept,) = index.info()["settings"]
    assert report.setting is not None
    assert (kept["target"], kept["k"], kept["recall"]) == (0.95, 10, report.setting.recall)
    assert [step.name for step in report.steps] == STEPS
    costs = [step.cost for step in report.steps]
    assert all(cost is not None and cost.recall >= 0.94 for cost in costs)
    assert costs[-1].bytes_read < 0.6 * costs[0].bytes_read  # type: ignore[union-attr]
    assert str(index.spaces[-1].rows.dtype) == "uint8"
    assert index.base.rows.dtype == np.float16


def test_the_report_is_a_table_and_facts() -> None:
    """The report prints one table line per step, and its facts can be written as JSON."""
    _, report = l2route.build(draw(500), draw(250, seed=1), minutes=0.02, k=5)
    lines = str(report).splitlines()
    assert "recall@5 of 0.95" in lines[0]
    assert lines[1].split()[0] == "step"
    assert [line.split()[0] for line in lines[2:9]] == STEPS
    assert len({len(line) for line in lines[1:9]}) == 1
    facts = json.loads(json.dumps(report.facts()))
    assert facts["n_distinct"] == 250
    assert facts["steps"][-1]["cost"]["bytes_read"] > 0
    assert facts["setting"]["k"] == facts["recipe"]["k"] == 5
    assert facts["learned"]["recall"] == 0.95
    assert facts["seconds"] >= sum(step["seconds"] for step in facts["steps"])


@pytest.mark.parametrize("metric", METRICS)
def test_without_queries_vectors_are_held_out(metric: Metric) -> None:
    """Without a log the setting is measured on held-out vectors, and the report says so.

    It reaches the recall for new queries distributed like the vectors. The vectors that were held
    out are in the final index.
    """
    base = draw(2000)
    index, report = l2route.build(base, metric=metric)
    assert recall_of(index, base, metric, 10, 0.95) == pytest.approx(0.95, abs=0.04)
    assert "no queries" in note_of(report, "learn")
    assert (report.n_queries, report.n_measured, report.learned) == (0, 200, None)
    assert "held out of the graph" in str(report)
    if metric != "ip":
        own = index.search(base, 1, ef=100).ids[:, 0]
        assert (own == np.arange(len(base))).mean() > 0.99


def test_few_queries_are_all_measured_on() -> None:
    """With 20 queries nothing is learned, all are used to measure, and a warning says how few."""
    with pytest.warns(CalibrationWarning, match="20 validation queries"):
        index, report = l2route.build(draw(800), draw(20, seed=1))
    assert index.validation is not None
    assert report.n_measured == len(index.validation.queries) == 20
    assert "got 20" in note_of(report, "learn")
    assert any("only known to" in doubt for doubt in report.doubts)
    assert index.search(draw(3, seed=2), 10, recall=0.95).ids.shape == (3, 10)


def test_repeats_are_measured_on_once() -> None:
    """Repeated queries of a log count once: only the distinct ones are used to measure."""
    rng = np.random.default_rng(0)
    log = draw(30, seed=1)[np.minimum(rng.zipf(1.3, size=5000) - 1, 29)]
    index, report = l2route.build(draw(800), log)
    n_distinct = len(np.unique(log, axis=0))
    assert index.validation is not None
    assert len(index.validation.queries) == report.n_distinct == n_distinct
    assert report.n_queries == 5000


def test_queries_that_are_base_vectors_are_told() -> None:
    """If many queries are base vectors, a warning and the report say so."""
    base = draw(800)
    with pytest.warns(CalibrationWarning, match="vectors of the index"):
        _, report = l2route.build(base, base[:300], minutes=0.02)
    assert any("find themselves" in doubt for doubt in report.doubts)


def test_what_is_not_learned_leaves_all_queries_to_measure_on() -> None:
    """Costs are measured on queries held out, or on all if nothing of the log is used."""
    index, report = l2route.build(draw(500), draw(240, seed=1), minutes=0.02)
    assert report.learned is not None
    n_held_out = report.learned.n_choosing + report.learned.n_confirming
    is_learned = note_of(report, "learn").endswith(": kept")
    is_refined = any(note_of(report, step).endswith(": kept") for step in ("edges", "entries"))
    assert report.n_measured == (n_held_out if is_learned or is_refined else 240)
    assert note_of(report, "learn").startswith(report.learned.figures)
    assert ("learned" in index.spaces[-1].name) == is_learned
    _, report = l2route.build(draw(500), draw(240, seed=1), minutes=0)
    assert report.learned is None
    assert "0 minutes" in note_of(report, "learn")


def test_constant_columns() -> None:
    """Vectors with constant dimensions can be built and searched."""
    base = draw(800)
    base[:, 3:9] = 7.0
    queries = draw(250, seed=1)
    queries[:, 3:9] = 7.0
    index, _ = l2route.build(base, queries, minutes=0.02)
    assert index.search(queries, 10, recall=0.95).ids.min() >= 0


def test_wide_vectors() -> None:
    """Vectors of 1,536 dimensions, as of text embeddings, can be built and searched."""
    base, queries = draw(600, 1536), draw(40, 1536, seed=1)
    index, report = l2route.build(base, queries, metric="cosine", k=3)
    assert index.search(queries, 3, recall=0.95).ids.shape == (40, 3)
    assert report.dim == 1536


def test_values_that_half_floats_cannot_tell_apart_stay_float32() -> None:
    """Vectors far from the origin stay float32, since float16 would make them equal."""
    base, queries = 30_000 + draw(800), 30_000 + draw(60, seed=1)
    index, report = l2route.build(base, queries, k=5, routing="int8")
    assert index.base.rows.dtype == np.float32
    assert "float16 original vectors: rounding leaves a recall of" in note_of(report, "compress")
    assert report.steps[-1].cost is not None
    assert report.steps[-1].cost.recall >= 0.94


def test_values_beyond_half_floats_stay_float32() -> None:
    """Values beyond the range of float16 stay float32, and the report says why."""
    index, report = l2route.build(1e6 * draw(800), 1e6 * draw(60, seed=1), k=5, routing="int8")
    assert index.base.rows.dtype == np.float32
    assert "a half float can hold" in note_of(report, "compress")
    assert "uint8" in str(index.spaces[-1].rows.dtype)


def test_a_recall_that_codes_do_not_reach() -> None:
    """Larger element types are used where codes do not reach the recall, and the report says so.

    Here the vectors form tight clusters, within which all codes are equal.
    """
    rng = np.random.default_rng(0)
    base = np.repeat(rng.normal(size=(6, 8)), 400, axis=0)
    base = (base + 1e-4 * rng.normal(size=base.shape)).astype(np.float32)
    queries = base[rng.permutation(len(base))[:60]] + np.float32(1e-5)
    index, report = l2route.build(base, queries, k=5, recall=0.99, routing="int4", minutes=0)
    note = note_of(report, "compress")
    assert note.startswith("int4 routing vectors and float16 original vectors: expected a recall@5")
    assert index.search(queries, 5, recall=0.99).ids.shape == (60, 5)
    assert index.spaces[-1].rows.dtype != np.uint8


def test_a_recall_that_nothing_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no setting reaches the recall, a warning says so and the index is returned without one.

    A search for that recall names the highest recall measured.
    """
    monkeypatch.setattr(calibrate, "WIDEST_BEAM", 10)
    monkeypatch.setattr(calibrate, "RERANKS", (1.0,))
    queries = draw(250, seed=1)
    with pytest.warns(CalibrationWarning, match="no setting was found: expected a recall@10 of"):
        index, report = l2route.build(draw(3000), queries, metric="ip", recall=1.0, minutes=0.1)
    assert report.setting is None
    assert "highest measured" in note_of(report, "learn")
    assert "vectors stay float32" in note_of(report, "compress")
    assert report.steps[-1].cost is None
    with pytest.raises(calibrate.OutOfReachError, match="highest measured"):
        index.search(queries, 10, recall=1.0)
    assert index.search(queries, 10).ids.min() >= 0


@pytest.mark.parametrize("queries", [None, draw(30, seed=1)])
def test_k_beyond_the_vectors_is_refused(queries: Vectors | None) -> None:
    """A k beyond the number of vectors is refused before any work; k equal to it is not."""
    with pytest.raises(ValueError, match="expected k of at most 8, the number of vectors, got 10"):
        l2route.build(draw(8), queries)
    index, report = l2route.build(draw(8), queries, k=8)
    if queries is None:
        assert report.setting is None
        assert "too few" in str(report)
    else:
        assert sorted(index.search(draw(1), 8, recall=0.95).ids[0]) == list(range(8))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 0}, "k in"),
        ({"k": 101}, "k in"),
        ({"recall": 0.0}, "recall"),
        ({"recall": 95}, "recall"),
        ({"routing": "int3"}, "int3"),
        ({"minutes": -1}, "minutes"),
        ({"metric": "taxi"}, "taxi"),
        ({"degree": 1}, "degree"),
        ({"graph": "tree"}, "tree"),
        ({"queries": draw(5, 7)}, r"\[\*, 24\]"),
        ({"queries": draw(5) * 1e18}, "expected queries of a length of at most"),
        ({"dim": 25}, r"expected dim in \[1, 24\], got 25"),
        ({"dim": 0}, r"expected dim in \[1, 24\], got 0"),
        ({"seed": -1}, r"expected a seed in \[0, 2\*\*64\), got -1"),
        ({"seed": 2**64}, r"expected a seed in \[0, 2\*\*64\), got 18446744073709551616"),
        ({"queries": draw(5), "neighbors": np.zeros(5, int)}, "at least 10], got int64 .5"),
        ({"queries": draw(5), "neighbors": np.zeros((5, 9), int)}, "at least 10], got int64 .5, 9"),
        ({"queries": draw(5), "neighbors": np.zeros((4, 10), int)}, r"expected neighbors int \[5,"),
        ({"queries": draw(5), "neighbors": np.zeros((5, 10))}, "expected neighbors int .* float64"),
        ({"queries": draw(5), "neighbors": np.full((5, 10), 2**32 + 5)}, "got 4294967301"),
        ({"queries": draw(5), "neighbors": np.full((5, 10), -1)}, r"neighbors in \[0, 200\)"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the wrong option."""
    monkeypatch.setattr("l2route.recipe.build.prepare", lambda *_, **__: pytest.fail("work"))
    with pytest.raises(ValueError, match=says):
        l2route.build(draw(200), **options)


def test_without_torch_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the index is built without learning, and the report says what to install."""
    real = builtins.__import__

    def no_training(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("l2route.training"):
            raise ImportError("No module named 'torch'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_training)
    index, report = l2route.build(draw(500), draw(250, seed=1))
    assert "train" in note_of(report, "learn")
    is_refined = any(note_of(report, step).endswith(": kept") for step in ("edges", "entries"))
    assert report.n_measured == (83 if is_refined else 250)
    assert index.search(draw(3), 10, recall=0.95).ids.shape == (3, 10)


def test_settings_survive_a_save(tmp_path: Any) -> None:
    """The setting of an index without validation queries is saved and loaded."""
    index, _ = l2route.build(draw(500))
    index.save(tmp_path / "index.l2r")
    again = l2route.load(tmp_path / "index.l2r")
    queries = draw(20, seed=3)
    found, expected = (each.search(queries, 10, recall=0.95).ids for each in (again, index))
    np.testing.assert_array_equal(found, expected)


def test_a_setting_of_another_space_is_not_kept() -> None:
    """`keep` refuses a setting of a space that the index does not have."""
    index, report = l2route.build(draw(500), routing="int8")
    assert report.setting is not None
    plain = l2route.RoutingIndex(index.base, index.graph)
    with pytest.raises(ValueError, match="expected a space of original, got 'original-int8'"):
        plain.keep(report.setting)
    plain.keep(replace(report.setting, space="original", rerank=0))
    assert len(plain.info()["settings"]) == 1


def test_vectors_have_the_given_ids() -> None:
    """Answers are by the given ids; ids that are not distinct are refused before any work."""
    base = draw(300)
    ids = np.random.default_rng(0).permutation(10**12 - np.arange(300))
    index, _ = l2route.build(base, draw(220, seed=1), minutes=0, ids=ids)
    assert index.search(base, 1, ef=50).ids[:, 0].tolist() == ids.tolist()
    assert sorted(index) == sorted(ids.tolist())
    with pytest.raises(ValueError, match="expected distinct ids, got 5 repeated"):
        l2route.build(base, ids=np.full(300, 5))


def test_it_learns_when_walks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With queries beside those that validate a rule is learned; the report has the worst 5%."""
    monkeypatch.setattr("l2route.recipe.builder.N_KEPT", 200)
    monkeypatch.setattr(l2route.RoutingIndex, "learn", lambda *_, **__: pytest.fail("too long"))
    monkeypatch.setattr("l2route.recipe.builder.Builder._learn", lambda _, index: index)
    monkeypatch.setattr("l2route.recipe.builder.compare", lambda *_: Timed(1.1))
    monkeypatch.setattr("l2route.state.log_refining.speedup", lambda *_: 1.1)
    base, log = draw(3000), draw(1500, seed=1)
    index, report = l2route.build(base, log, minutes=0.01, routing="float32")
    assert index.info()["rules"] == [{"space": "original", "k": 10}]
    assert "learned rule" in note_of(report, "stop")
    cost = report.steps[-1].cost
    assert cost is not None
    assert 0 < cost.worst_recall <= cost.recall
    assert "worst 5%" in str(report)
    assert "below 0.8 for" in str(report)
    assert recall_of(index, base, "l2", 10, 0.95) == pytest.approx(0.95, abs=0.03)


def test_costs_of_all_steps_are_of_the_recall() -> None:
    """Also where walks end by a learned rule, in an index whose vertices were renumbered."""
    base, log = draw(3000), draw(3500, seed=1)
    _, report = l2route.build(base, log, minutes=0.05)
    for step in report.steps:
        assert step.cost is not None
        assert 0.94 <= step.cost.recall <= 1, step
    assert "skipped" not in note_of(report, "stop")
