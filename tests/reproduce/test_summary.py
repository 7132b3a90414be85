"""Laws of the tables of a run."""

import pytest

from l2route.data.dataset import Dataset
from l2route.files.formats import read_npz
from l2route.reproduce.plan import Cell
from l2route.reproduce.store import Store
from l2route.reproduce.summary import Figure, Gain, as_markdown, cells_of, points, summarize
from paper_runs import Finished


def test_tables_agree_with_raw_results(finished: Finished) -> None:
    """Recall and gains, ours and the paper's, agree with a slow computation."""
    run, path, _ = finished
    data = Dataset.read(path)
    nearest = ((data.query[:, None] - data.base[None]) ** 2).sum(axis=2).argmin(axis=1)
    table = summarize(Store(run))[0]
    planned = Store(run).tables()[0].cells
    recalls = {}
    for figure, cell in zip(table.figures, planned, strict=True):
        ids = read_npz(run / "results" / f"{cell.key}.npz")["ids"]
        recalls[figure.cell.method, figure.cell.budget, figure.cell.compression] = (
            ids == nearest
        ).mean()
        assert figure.recall == pytest.approx((ids == nearest).mean())
    figures = {figure.cell.place: figure for figure in table.figures}
    learned, short = figures["learned", 256, 1], figures["learned", 128, 4]
    gain = recalls["learned", 256, 1] - recalls["original", 256, 1]
    assert (learned.gain.ours, learned.gain.paper) == pytest.approx((gain, 0.799 - 0.672))
    assert (learned.over_original.ours, learned.over_original.paper) == (None, None)
    gain = recalls["learned", 128, 4] - recalls["pca", 128, 4]
    assert (short.gain.ours, short.gain.paper) == pytest.approx((gain, 0.837 - 0.794))
    over = recalls["learned", 128, 4] - recalls["original", 128, 1]
    assert short.over_original.ours == pytest.approx(over)
    assert short.over_original.paper == pytest.approx(0.837 - 0.239)


def test_markdown_marks_what_falls_short(finished: Finished) -> None:
    """Every row is present, and as many are marked as have a gain below the paper's."""
    run, _, _ = finished
    store = Store(run)
    tables = summarize(store)
    text = as_markdown(tables, store)
    figures = [figure for table in tables for figure in table.figures]
    rows = [line for line in text.splitlines() if line.startswith(("| 128", "| 256", "| 512"))]
    assert len(rows) == len(figures) + sum(f.reached is not None for f in tables[1].figures)
    assert sum("▼" in row for row in rows) == sum(figure.falls_short for figure in figures)


def make_figure(gain: Gain, over_original: Gain) -> Figure:
    """A figure with these gains and nothing else."""
    cell = Cell("sift", "learned", 128, 4, 16, 320, 0.837)
    return Figure(
        cell, "learned", 0.8, 0.01, gain, over_original, 128.0, 9.0, 300.0, 5, "pca", None, None
    )


@pytest.mark.parametrize(
    ("gain", "paper_gain", "is_short"),
    [
        (0.042, 0.043, True),
        (0.0431, 0.043, False),
        (0.0426, 0.043, False),  # the same in print
        (-0.01, -0.005, False),  # the paper's gain is negative
        (None, 0.1, False),
        (0.1, None, False),
    ],
)
def test_falling_short(gain: float | None, paper_gain: float | None, is_short: bool) -> None:
    """A gain falls short if the paper's is positive and larger, as printed; both gains count."""
    none = Gain(None, None)
    for at, figure in (
        (7, make_figure(Gain(gain, paper_gain), none)),
        (9, make_figure(none, Gain(gain, paper_gain))),
    ):
        assert figure.falls_short is is_short
        assert cells_of(figure)[at].endswith("▼") is is_short
        assert cells_of(figure)[1] == "learned ×4 (pca graph)"


def test_points_have_a_sign() -> None:
    """Differences have a plus or a true minus sign."""
    assert [points(0.1234), points(-0.0512), points(0.0), points(None)] == [
        "+12.3",
        "−5.1",
        "+0.0",
        "–",
    ]
