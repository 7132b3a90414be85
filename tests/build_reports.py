"""Reports of builds: one of every kind of step, and random ones."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from l2route.recipe.outcome import Cost, Decision, Step
from l2route.recipe.report import BuildReport
from l2route.recipe.steps import Recipe
from l2route.search.setting import Setting

LONG = "int8 routing vectors and float16 original vectors: queries would read 9,999 bytes; " * 9


def cost(speed: float, recall: float = 0.951) -> Cost:
    """A cost with so many queries a second."""
    return Cost(recall, 0.712, 0.03, 900.0, 12_000.0, 1e6 / speed)


def step(name: str, speed: float | None, decision: Decision = "kept", note: str = "") -> Step:
    """A step after which there are so many queries a second; None if the recall is not reached."""
    measured = None if speed is None else cost(speed)
    return Step(name, 1.5, 1792.0, measured, note or None, decision)


def report_of(*steps: Step, n_queries: int = 5000, n_measured: int = 400) -> BuildReport:
    """A report with these steps."""
    return BuildReport(
        n_vectors=100_000,
        dim=384,
        recipe=Recipe(metric="cosine"),
        n_queries=n_queries,
        n_distinct=n_queries,
        n_measured=n_measured,
        steps=steps,
        measuring_seconds=2.0,
        setting=Setting("original", 10, 0.95, 20, 0.951, slack=0.1),
        learned=None,
        doubts=(),
    )


GAINED = report_of(
    step("build", 1000),
    step("edges", 1250, note="1.38 more per vertex; 911 → 727 scored, 1.25 times as fast: kept"),
    step("entries", 1250, "not kept", "16 clusters; 0.98 times as fast: not kept"),
    step("learn", 1500, note="takes 86% of the time, 1.20 times as fast: kept"),
    step("renumber", 1350),
    step("compress", 2700, note="int8: no fewer; float16 routing vectors: kept"),
    step("stop", 2700, "skipped", "skipped: there are no queries to learn from"),
)
"""A build in which some steps are kept, one is slower, one is not kept and one is skipped."""
GAINED_NOTHING = report_of(
    step("build", 1000),
    step("edges", 1000, "not kept", "0.97 times as fast: not kept"),
    step("learn", 1000, "not kept", "reads 99%: not kept, since it is no better than 'original'"),
    step("compress", 1000, "not kept", LONG),
)
"""A build in which nothing pays."""
UNREACHED = replace(
    report_of(step("build", None), step("learn", None, "skipped", "skipped: out of reach")),
    setting=None,
    doubts=("no setting was found: expected a recall@10 of 1",),
)
"""A build whose recall no setting reaches."""

_shares = st.floats(0, 1)
_sizes = st.floats(0, 1e12)
_counts = st.integers(0, 10**12)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_costs = st.builds(Cost, _shares, _shares, _shares, _sizes, _sizes, st.floats(1e-2, 1e9))
_steps = st.builds(
    Step,
    name=_texts,
    seconds=_sizes,
    bytes_per_vector=_sizes,
    cost=st.none() | _costs,
    note=st.none() | _texts,
    decision=st.sampled_from(["kept", "not kept", "skipped"]),
)
_recipes = st.builds(
    Recipe,
    metric=st.sampled_from(["l2", "cosine"]),
    k=st.integers(1, 100),
    recall=st.floats(0.01, 1),
    routing=st.sampled_from(["int4", "int8", "float16", "float32"]),
    minutes=st.floats(0, 100),
    dim=st.none() | st.integers(1, 100),
    seed=st.integers(0, 2**63),
)
_settings = st.builds(
    Setting,
    space=_texts,
    k=st.integers(1, 100),
    target=_shares,
    rerank=st.integers(0, 1000),
    recall=_shares,
    ef=st.integers(0, 1000),
    threshold=st.none() | st.floats(-1e6, 1e6),
)
reports = st.builds(
    BuildReport,
    n_vectors=_counts,
    dim=_counts,
    recipe=_recipes,
    n_queries=_counts,
    n_distinct=_counts,
    n_measured=_counts,
    steps=st.lists(_steps, min_size=1, max_size=9).map(tuple),
    measuring_seconds=_sizes,
    setting=st.none() | _settings,
    learned=st.none(),
    doubts=st.lists(_texts, max_size=3).map(tuple),
)
"""Any report, as it is after loading."""
