"""Laws of a run's directory."""

from pathlib import Path

from l2route.reproduce.plan import Cell
from l2route.reproduce.store import PlannedCell, PlannedTable, Store
from paper_runs import Finished


def test_an_incomplete_result_does_not_count(finished: Finished, tmp_path: Path) -> None:
    """A result without its JSON, or with a truncated file, is not finished."""
    run, _, _ = finished
    key = Store(run).tables()[0].cells[0].key
    store = Store(tmp_path)
    store.create()
    arrays = (run / "results" / f"{key}.npz").read_bytes()
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays)
    assert store.read(key) is None
    facts = (run / "results" / f"{key}.json").read_bytes()
    (tmp_path / "results" / f"{key}.json").write_bytes(facts)
    assert store.is_finished(key)
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays[:-100])
    assert not store.is_finished(key)
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays)
    (tmp_path / "results" / f"{key}.json").write_bytes(facts[:-9])
    assert not store.is_finished(key)


def test_a_plan_keeps_tables_of_other_data(tmp_path: Path) -> None:
    """A table is replaced by one of the same name on the same data only."""
    store = Store(tmp_path)
    store.create()

    def table(name: str, dataset: str, key: str) -> PlannedTable:
        cell = PlannedCell(Cell(dataset, "original", 128, 1, 0, 128), "original", key, None)
        return PlannedTable(name, dataset, "d", "T", "S", "A", "l2route", (cell,))

    store.write_plan([table("sota", "a", "1"), table("table1", "a", "2")])
    store.write_plan([table("table1", "b", "3")])
    store.write_plan([table("table1", "a", "4")])
    got = [(t.name, t.dataset, t.cells[0].key) for t in store.tables()]
    assert got == [("table1", "b", "3"), ("table1", "a", "4"), ("sota", "a", "1")]
