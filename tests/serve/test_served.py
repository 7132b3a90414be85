"""Laws of reloads: a newer save is served with every change that was made here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2route.data.labels import Labels
from l2route.index import RoutingIndex, load
from l2route.serve.served import ReloadError, Served
from serving import DIM, QUERIES, VECTORS, saved_index


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path / "index.l2r")


def test_a_newer_save_is_served(path: Path) -> None:
    """A save of another process is loaded once; own saves are not newer."""
    served = Served(path)
    assert not served.is_newer
    assert not served.reload()
    other = load(path)
    other.compress("int8")
    other.save()
    assert served.is_newer
    assert served.reload()
    assert served.index.space_names == other.space_names
    assert (served.is_newer, served.reload(), served.n_reloads) == (False, False, 1)
    served.delete(np.array([4]))
    served.save()
    assert not served.is_newer


@pytest.mark.parametrize("way", ["in memory", "in the journal", "saved"])
def test_changes_survive_the_save_of_one_that_did_not_see_them(path: Path, way: str) -> None:
    """Adds, updates and deletes made here are in the newer save too, and on the disk."""
    other = load(path)  # before all changes
    served = Served(path)
    served.add(QUERIES[:3], np.array([900, 901, 902]), None)
    served.update(np.array([10, 901]), QUERIES[5:7])
    served.delete(np.array([20, 902]))
    if way == "in the journal":
        served.commit()
    elif way == "saved":
        served.save()
    other.compress("int8")
    other.save()
    if way != "in memory":  # whatever becomes of the server
        assert set(load(path)) == set(served.index)
    assert served.reload()
    assert served.has_changes == (way == "in memory")
    served.commit()
    for index in (served.index, load(path)):
        assert index.space_names == other.space_names
        assert {900, 901, 902, 20, 10} & set(index) == {900, 901, 10}
        assert np.array_equal(index.vectors([900, 10, 901]), QUERIES[[0, 5, 6]])
        assert len(index) == 301


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_changes_and_saves(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Whatever is changed here while others learn and save, a reload has the set of changes."""
    rng = np.random.default_rng(seed)
    path = saved_index(tmp_path_factory.mktemp("any") / "index.l2r")
    served, model = Served(path), dict(enumerate(VECTORS))
    others = [load(path)]
    for _ in range(12):
        ids = rng.choice(400, size=3, replace=False)
        rows = rng.normal(size=(3, DIM)).astype(np.float32)
        kept = np.array([i in model for i in ids.tolist()])
        step = rng.integers(5)
        if step == 0 and (~kept).any():
            served.add(rows[~kept], ids[~kept], None)
            model |= dict(zip(ids[~kept].tolist(), rows[~kept], strict=True))
        elif step == 1 and kept.any():
            served.update(ids[kept], rows[kept])
            model |= dict(zip(ids[kept].tolist(), rows[kept], strict=True))
        elif step == 2 and kept.any():
            served.delete(ids[kept])
            model = {i: row for i, row in model.items() if i not in ids[kept]}
        elif step == 3:
            rng.choice([served.save, served.commit])()
            others.append(load(path))
        else:
            other = others[rng.integers(len(others))]
            other.refresh()
            other.renumber()
            other.save(path)
            served.reload()
        assert sorted(served.index) == sorted(model)
    names = sorted(model)
    assert np.array_equal(served.index.vectors(names), np.array([model[i] for i in names]))
    shutil.rmtree(path)


def test_what_cannot_be_served_is_refused(path: Path) -> None:
    """Indexes of other vectors and damaged ones are not served; the old one goes on."""
    served = Served(path)
    before = sorted(served.index)
    RoutingIndex.build(VECTORS[:, :5]).save(path, overwrite=True)
    with pytest.raises(ReloadError, match="expected an index of 8 dimensions, l2, got 5"):
        served.reload()
    RoutingIndex.build(VECTORS, "cosine").save(path, overwrite=True)
    with pytest.raises(ReloadError, match="got 8 dimensions, cosine"):
        served.reload()
    (path / "meta.json").write_text("{")
    with pytest.raises(ReloadError, match="expected JSON"):
        served.reload()
    shutil.rmtree(path)
    assert not served.is_newer
    assert not served.reload()
    assert sorted(served.index) == before
    served.delete(np.array([1]))
    served.commit()  # writes the whole index
    assert len(load(path)) == 299


def test_changes_made_here_win(path: Path) -> None:
    """An id that another process deletes, and that was changed here since, stays."""
    served = Served(path)
    other = load(path)
    other.delete([6, 7])
    other.save()
    served.update(np.array([6]), QUERIES[:1])
    assert served.reload()
    assert (6 in served.index, 7 in served.index) == (True, False)


def test_names_survive_the_save_of_one_that_did_not_see_them(path: Path) -> None:
    """Names given here are in the newer save too, and those of deleted vectors are not."""
    other = load(path)
    served = Served(path, Labels.of([f"vector {i}" for i in range(300)]))
    served.add(QUERIES[:2], np.array([900, 901]), ["new", "newer"])
    served.delete(np.array([7, 8]))
    served.commit()
    served.add(QUERIES[:1], np.array([7]), None)
    served.save()
    other.compress("int8")
    other.save()
    assert served.reload()
    expected = ["new", "newer", "vector 6", None, None]
    for index in (served.index, load(path)):
        assert index.names.names([900, 901, 6, 7, 8]) == expected


def test_a_mapped_index_is_served_and_changed(path: Path) -> None:
    """A mapped index can be changed and reloaded like one in memory."""
    served = Served(path, mmap=True)
    served.add(QUERIES[:1], None, None)
    served.save()
    other = load(path)
    other.renumber()
    other.save()
    assert served.reload()
    assert 300 in served.index
