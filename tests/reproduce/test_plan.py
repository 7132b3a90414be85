"""Laws of the experiment files: they agree with the paper, and apply to other data."""

import pytest

from l2route.reproduce import plan
from l2route.reproduce.plan import (
    EXPERIMENTS,
    Method,
    cells_for,
    paper_datasets,
    read_experiment,
    rerank_for,
    stands_for,
)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_file_is_read_and_its_budgets_add_up(name: str) -> None:
    """Reading checks that each rDCS is what the budget leaves after rerank and projection."""
    experiment = read_experiment(name)
    assert experiment.cells
    assert {cell.method for cell in experiment.cells} <= set(experiment.methods)
    for method in experiment.methods.values():
        assert set(method.against) <= set(experiment.methods)


TABLE_1 = """
.239 .371 .180 .311 .794 .837 .672 .799 .855 .893 .965 .960 .936 .949 .980 .981
.386 .474 .399 .565 .673 .779 .795 .811 .869 .888 .871 .917 .940 .945 .967 .973
.198 .305 .150 .343 .400 .526 .243 .415 .394 .604 .582 .676 .616 .699
"""
"""The paper's recalls, a line per dataset, from the table's top down."""


@pytest.fixture(autouse=True)
def small_data_stands_in() -> None:
    """Here the paper's datasets are as large as they are."""


def test_table1_has_the_papers_46_figures() -> None:
    """Sixteen rows for SIFT and DEEP, fourteen for GloVe, which is too long for ×2 at 128."""
    cells = [cell for cell in read_experiment("table1").cells if cell.recall is not None]
    cells = [cell for cell in cells if cell.method != "ours"]
    for name, line in zip(paper_datasets(), TABLE_1.strip().splitlines(), strict=True):
        ours = [cell.recall for cell in cells if cell.dataset == name]
        assert ours == [float(figure) for figure in line.split()]
    counts = {name: sum(cell.dataset == name for cell in cells) for name in paper_datasets()}
    assert counts == {"SIFT100K": 16, "DEEP100K": 16, "GloVe100K": 14}
    chosen = [c for c in cells if (c.dataset, c.method, c.budget) == ("GloVe100K", "learned", 256)]
    assert [(c.compression, c.k, c.rdcs, c.recall) for c in chosen] == [
        (1, 8, 248, 0.526),
        (2, 8, 196, 0.415),
        (4, 32, 596, 0.604),
    ]


def test_the_rule_for_k_is_the_papers_but_for_deep_at_four() -> None:
    """Of the paper's choices of k the rule misses two, both half of the paper's."""
    missed = {
        (cell.dataset, cell.budget, cell.compression, cell.k / rerank)
        for cell in read_experiment("table1").cells
        if cell.k
        and cell.method != "ours"
        and (
            rerank := rerank_for(cell.budget, cell.compression, paper_datasets()[cell.dataset].dim)
        )
        != cell.k
    }
    assert missed == {("DEEP100K", 128, 4, 2.0), ("DEEP100K", 256, 4, 2.0)}


def test_data_of_the_same_dimension_has_the_papers_cells() -> None:
    """Cells for data of the paper's dimension have the paper's k, rDCS and recall."""
    experiment = read_experiment("table1")
    ours = cells_for(experiment, "sift", 100_000, 128)
    theirs = [cell for cell in experiment.cells if cell.dataset == "SIFT100K"]
    assert [(c.method, c.k, c.rdcs, c.recall) for c in ours] == [
        (c.method, c.k, c.rdcs, c.recall) for c in theirs
    ]


def test_data_of_another_dimension_has_the_rules_cells_beside_the_papers_figures() -> None:
    """A dimension of 100 has room for ×2 at 128, where the paper's 300 has none."""
    cells = {
        (c.method, c.budget, c.compression): c
        for c in cells_for(read_experiment("table1"), "glove100", 100_000, 100)
    }
    short = cells["learned", 256, 4]
    assert (short.k, short.rdcs, short.recall) == (32, 796, 0.604)
    added = cells["learned", 128, 2]
    assert (added.k, added.rdcs, added.recall) == (8, 140, None)


def test_short_vectors_are_not_compressed() -> None:
    """Vectors of 3 dimensions have no cells at compression ×4."""
    assert {c.compression for c in cells_for(read_experiment("table1"), "a", 500, 3)} == {1, 2}


def test_other_data_has_no_figures_of_the_paper() -> None:
    """Other data has no recall of the paper, and no cells whose budget leaves none for routing."""
    cells = cells_for(read_experiment("table1"), "words", 100_000, 400)
    assert all(cell.recall is None and cell.rdcs >= 1 for cell in cells)
    assert ("learned", 128, 4) in {(c.method, c.budget, c.compression) for c in cells}
    assert ("learned", 128, 2) not in {(c.method, c.budget, c.compression) for c in cells}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sift", "SIFT100K"), ("Glove-50", "GloVe100K"), ("deep96", "DEEP100K"), ("words", None)],
)
def test_data_stands_for_what_its_name_starts_with(name: str, kind: str | None) -> None:
    """Names are compared without case; data of another size stands for none."""
    found = stands_for(name, 100_000)
    assert stands_for(name, 10_000) is stands_for(name, 1_000_000) is None
    assert (None if found is None else found.name) == kind


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"cells": [{"rdcs": 7}]}, "rdcs 128"),
        ({"cells": [{"dataset": "MNIST"}]}, "expected a dataset of SIFT100K"),
        ({"cells": [{"method": "magic"}]}, "expected a method of plain"),
        ({"cells": [{"colour": "red"}]}, "got 'colour'"),
        ({"methods": {"plain": {"label": "plain", "graph": "tree"}}}, "a graph of l2route"),
        ({"methods": {"plain": {"label": "plain", "minutes": 0}}}, "expected minutes above 0"),
    ],
)
def test_a_wrong_file_is_refused(
    table: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a wrong value is refused; the error states what was expected and found."""
    cell = {"dataset": "SIFT100K", "method": "plain", "budget": 128, "compression": 1}
    cell |= {"k": 0, "rdcs": 128}
    given = table.get("cells", [{}])
    assert isinstance(given, list)
    content = {"title": "", "source": "", "about": "", "methods": {"plain": {"label": "plain"}}}
    content |= table | {"cells": [cell | change for change in given]}
    real = plan._read_toml
    monkeypatch.setattr(
        plan, "_read_toml", lambda name: real(name) if name == "datasets" else content
    )
    with pytest.raises(ValueError, match=message):
        read_experiment("table1")


def test_an_unknown_experiment_is_refused() -> None:
    """The error names the unknown experiment."""
    with pytest.raises(ValueError, match="got 'dance'"):
        read_experiment("dance")


def test_unknown_spaces_and_objectives_are_refused() -> None:
    """Unknown names are refused when a file is read, not hours later."""
    for wrong in ({"space": "round"}, {"objective": "fame"}, {"graph_space": "flat"}):
        with pytest.raises(ValueError, match="expected a"):
            Method("", **wrong)  # type: ignore[arg-type] # wrong on purpose
