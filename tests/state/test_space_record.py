"""Laws of spaces in index directories: their vertex maps and gains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoding import unencoded_space
from indexes import built
from l2route.index import RoutingIndex, load
from l2route.search.encode import encode_vertices
from l2route.search.gain import Gain
from l2route.search.space import pca_space
from l2route.search.vertex_map import FilterMap, Projection
from l2route.state.space_record import arrays_of_space, entry_of_space, space_of

GOLDEN = Path(__file__).parents[1] / "golden" / "schema1"
INDEX = built()


def test_spaces_of_version_0_1_are_projections_by_name() -> None:
    """Spaces of the original vectors and of PCA encode vertices, also if saved without a map."""
    index = load(GOLDEN)
    by_name = {space.name: space for space in index.spaces}
    is_projected = {name: name.startswith(("original", "pca")) for name in by_name}
    assert any(is_projected.values())
    for name, space in by_name.items():
        assert (space.vertex_map == Projection()) is is_projected[name]
        if is_projected[name]:
            rows, _ = encode_vertices(space, index.base, index.graph.neighbors, np.arange(20))
            apart = np.abs(rows.astype(np.float32) - space.rows[:20])
            assert apart.max() <= (1 if space.codes is not None else 1e-4)


@pytest.mark.parametrize("pca_dim", [None, 6])
def test_a_gain_is_read_as_written(pca_dim: int | None, tmp_path: Path) -> None:
    """The gain of a learned space survives saving, and `info` has it."""
    gain = Gain(k=1, budget=64, routing=50, rerank=8, pca_dim=pca_dim, plain=0.25, learned=0.5)
    space = replace(pca_space(INDEX.base, 6), name="learned", gain=gain)
    RoutingIndex(INDEX.base, INDEX.graph, [space]).save(tmp_path / "index")
    index = load(tmp_path / "index")
    assert index.spaces[-1].gain == gain
    assert index.info()["spaces"][-1]["gain"]["learned"] == 0.5


def test_a_gain_with_a_count_of_zero_is_refused() -> None:
    """Counts of a gain are at least 1."""
    with pytest.raises(ValueError, match=r"expected a gain with counts of at least 1, got \(1, 0"):
        Gain(k=1, budget=0, routing=50, rerank=8, pca_dim=None, plain=0.25, learned=0.5)


def test_a_filter_is_read_as_written() -> None:
    """All arrays of a vertex map are read back, without hubs if there are none."""
    space = unencoded_space(len(INDEX), 12)
    by = space.vertex_map
    assert isinstance(by, FilterMap)
    none = by.with_hubs(by.hubs[:0], by.hub_shifts[:0])
    for each in (by, none, replace(by, lengthwise=None)):
        written = replace(space, vertex_map=each)
        read = space_of(3, entry_of_space(written), arrays_of_space(3, written)).vertex_map
        assert isinstance(read, FilterMap)
        assert read.constant == each.constant
        for name in ("axes", "means", "lengths", "weights", "singles", "out", "shift", "bias"):
            np.testing.assert_array_equal(getattr(read, name), getattr(each, name))
        np.testing.assert_array_equal(read.hub_shifts, each.hub_shifts)
        assert (read.lengthwise is None) == (each.lengthwise is None)


def test_a_damaged_vertex_map_is_refused() -> None:
    """A kind that is not known, an array that is missing or of another type: the error names it."""
    space = unencoded_space(len(INDEX), 12)
    entry, arrays = entry_of_space(space), arrays_of_space(0, space)
    with pytest.raises(
        ValueError, match=r"expected a vertex map projection, linear or filter, got"
    ):
        space_of(0, entry | {"vertex_map": "magic"}, arrays)
    for name in ("axes", "constant", "shift"):
        without = {key: each for key, each in arrays.items() if key != f"space0_filter_{name}"}
        with pytest.raises(ValueError, match=f"expected an array space0_filter_{name}"):
            space_of(0, entry, without)
    wrong = arrays | {"space0_filter_lengthwise": np.zeros(12)}
    with pytest.raises(ValueError, match=r"expected space0_filter_lengthwise float32, got float64"):
        space_of(0, entry, wrong)
