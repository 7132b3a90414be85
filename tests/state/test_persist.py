"""Laws of states in directories: they are read as they were written."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes import DIM, N, built, with_everything
from l2route.index import RoutingIndex, load
from l2route.search.setting import Loss, Setting
from l2route.search.space import Codes, RoutingSpace
from l2route.state.persist import read_state, write_state
from l2route.state.state import IndexState

GOLDEN = Path(__file__).parents[1] / "golden" / "schema1"
EVERYTHING = with_everything()._current.state


def assert_same_fields(a: RoutingSpace | Codes, b: RoutingSpace | Codes) -> None:
    """Every field is equal; arrays in dtype, shape and content."""
    for field in fields(a):
        ours, theirs = getattr(a, field.name), getattr(b, field.name)
        if isinstance(ours, Codes):
            assert_same_fields(ours, theirs)
        elif isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        else:
            assert ours == theirs, field.name


def assert_same_state(a: IndexState, b: IndexState) -> None:
    """Two states hold the same arrays, spaces, settings and losses."""
    assert list(a.arrays()) == list(b.arrays())
    for name, array in a.arrays().items():
        assert array.dtype == b.arrays()[name].dtype
        np.testing.assert_array_equal(array, b.arrays()[name])
    assert (a.base.dim, a.base.metric) == (b.base.dim, b.base.metric)
    for ours, theirs in zip(a.spaces, b.spaces, strict=True):
        assert_same_fields(ours, theirs)
    assert (a.settings, a.losses) == (b.settings, b.losses)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_written_is_read(
    index: RoutingIndex, tmp_path: Path, mmap: bool, verify: bool
) -> None:
    """`read_state` is the inverse of `write_state` for every kind of index."""
    state = index._current.state
    write_state(tmp_path / "index", state)
    assert_same_state(read_state(tmp_path / "index", mmap=mmap, verify=verify)[0], state)


@settings(max_examples=20)
@given(
    settings_=st.lists(
        st.builds(
            Setting,
            space=st.sampled_from(["original", "pca6", "biased"]),
            k=st.integers(1, 100),
            target=st.floats(0, 1),
            rerank=st.integers(0, 1000),
            recall=st.floats(0, 1),
            ef=st.integers(1, 10_000),
        ),
        unique_by=lambda each: (each.space, each.k, each.target),
    ),
    losses=st.lists(
        st.builds(
            Loss,
            space=st.text(st.characters(exclude_categories=["Cs"])),
            k=st.integers(1, 100),
            ef=st.integers(1, 1000),
            before=st.floats(0, 1),
            after=st.floats(0, 1),
        ),
        unique_by=lambda each: each.space,
    ),
    labels=st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=N, max_size=N),
)
def test_records_of_any_values_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory,
    settings_: list[Setting],
    losses: list[Loss],
    labels: list[int] | None,
) -> None:
    """Settings, losses and labels of any values are read exactly as written."""
    path = tmp_path_factory.mktemp("state")
    named = None if labels is None else np.unique(np.array([*labels, *range(2 * N)]))
    named = None if named is None else named[named != -1][:N]
    state = IndexState.of(
        EVERYTHING.base,
        EVERYTHING.graph,
        EVERYTHING.spaces[1:],
        named,
        EVERYTHING.validation,
        settings_,
        losses,
    )
    write_state(path, state)
    assert_same_state(read_state(path)[0], state)


def test_the_golden_index_is_written_as_it_was(tmp_path: Path) -> None:
    """The arrays of the golden index are written with the same names and bytes as by 0.1.0."""
    load(GOLDEN).save(tmp_path)
    for file in GOLDEN.glob("*.npy"):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    assert len(list(tmp_path.glob("*.npy"))) == len(list(GOLDEN.glob("*.npy"))) > 10


def labels_with(**values: int) -> np.ndarray:
    """Labels 10, 11, … with some replaced: `at_3=5` for vertex 3."""
    labels = np.arange(10, 10 + N)
    for name, value in values.items():
        labels[int(name.removeprefix("at_"))] = value
    return labels


BAD_LABELS = {
    "repeated": (labels_with(at_7=13), "expected distinct labels, got 13 for vertices 3 and 7"),
    "no answer": (
        labels_with(at_5=-1),
        r"expected labels other than -1 \(no answer\), got -1 for vertex 5",
    ),
    "too few": (np.arange(N - 1), r"expected labels int64 \[400\], got int64 \[399\]"),
    "of halves": (np.arange(N) / 2, r"expected labels int64 \[400\], got float64 \[400\]"),
}


@pytest.mark.parametrize("fault", BAD_LABELS)
def test_labels_are_distinct_and_never_no_answer(fault: str) -> None:
    """Labels that are repeated or −1 are refused, and the error names the label."""
    labels, message = BAD_LABELS[fault]
    with pytest.raises(ValueError, match=message):
        IndexState.of(EVERYTHING.base, EVERYTHING.graph, labels=labels)
    with pytest.raises(ValueError, match=message):
        RoutingIndex(EVERYTHING.base, EVERYTHING.graph, labels=labels)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("fault", ["repeated", "no answer"])
def test_such_labels_are_not_loaded(tmp_path: Path, fault: str, verify: bool) -> None:
    """Such labels are refused on loading, with and without verification."""
    labels, message = BAD_LABELS[fault]
    index = RoutingIndex(EVERYTHING.base, EVERYTHING.graph, labels=np.arange(N) + 3)
    index._current.state.arrays()["labels"][:] = labels
    index.save(tmp_path / "index")  # a state is checked when it is made, not when it is written
    with pytest.raises(ValueError, match=f"index: expected an intact index, got {message}"):
        load(tmp_path / "index", verify=verify)


def test_padding_that_is_not_zero_is_refused_by_row(tmp_path: Path) -> None:
    """Padding other than zero is refused, because the core reads whole rows."""
    index = built()
    index.base.rows[7, DIM] = 1
    with pytest.raises(ValueError, match=r"expected vectors padded with zeros .* got .* row 7"):
        index.save(tmp_path)
