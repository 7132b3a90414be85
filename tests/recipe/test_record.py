"""Laws of saved reports: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import l2route
from build_reports import GAINED, reports
from damage import edit_json
from l2route.files.meta import signed
from l2route.recipe.report import BuildReport


def draw(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Normal vectors [n, 8]."""
    return np.random.default_rng(seed).normal(size=(n, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def built() -> tuple[l2route.RoutingIndex, BuildReport]:
    """An index made for a recall, and its report."""
    return l2route.build(draw(400), draw(250, seed=1), k=5, minutes=0.02)


@given(reports)
def test_a_record_is_read_again(report: BuildReport) -> None:
    """Reading is the inverse of writing, also by way of JSON text."""
    assert BuildReport.of_record(json.loads(json.dumps(report.record(), allow_nan=False))) == report


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """`load` reads what `save` wrote; a second save replaces the first."""
    path = tmp_path / "report.json"
    GAINED.save(path)
    replace(GAINED, dim=7).save(str(path))
    assert BuildReport.load(path) == replace(GAINED, dim=7)
    assert str(BuildReport.load(str(path))) == str(replace(GAINED, dim=7))


def test_numbers_of_numpy_are_plain_in_a_record() -> None:
    """Options given as numbers of numpy are written as plain ones."""
    options = {"degree": np.int64(8), "seed": np.int32(3), "recall": np.float32(0.5)}
    _, report = l2route.build(draw(60), k=3, **options)  # type: ignore[arg-type]
    recipe = BuildReport.of_record(json.loads(json.dumps(report.record()))).recipe
    assert (recipe.degree, recipe.seed, recipe.recall) == (8, 3, 0.5)


def test_an_index_keeps_the_report_of_its_build(
    tmp_path: Path, built: tuple[l2route.RoutingIndex, BuildReport]
) -> None:
    """A saved index has the report, all but `learned`, also after patches and later changes."""
    index, report = built
    index = copy.deepcopy(index)
    expected = replace(report, learned=None)
    index.save(tmp_path / "index")
    assert BuildReport.load(tmp_path / "index") == expected
    index.add(draw(5, seed=3))
    index.save()
    assert json.loads((tmp_path / "index/meta.json").read_text())["patches"]
    assert BuildReport.load(tmp_path / "index") == expected
    again = l2route.load(tmp_path / "index")
    again.delete([3])
    again.compact()
    again.save(tmp_path / "other")
    again.learn_stopping(draw(600, seed=4), k=3)
    pickle.loads(pickle.dumps(again)).save(tmp_path / "copy")
    for name in ("other", "copy"):
        assert BuildReport.load(tmp_path / name) == expected


def test_an_index_built_otherwise_has_none(
    tmp_path: Path, built: tuple[l2route.RoutingIndex, BuildReport]
) -> None:
    """An index saved over another one takes its report away; the error says what was expected."""
    built[0].save(tmp_path)
    l2route.RoutingIndex.build(draw(50)).save(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match=r"expected an index made by l2route\.build, got one with"):
        BuildReport.load(tmp_path)


def test_what_an_index_returns_is_a_copy(
    built: tuple[l2route.RoutingIndex, BuildReport],
) -> None:
    """Changes of the record that was returned do not change the index."""
    record = built[0].build_record
    assert record is not None
    record["recipe"]["k"] = 99
    assert BuildReport.of_record(built[0].build_record) == replace(built[1], learned=None)


@given(st.integers(0, 2**32))
def test_a_damaged_record_is_refused_or_can_be_used(seed: int) -> None:
    """Whatever is changed in a record: a ValueError, or a report that prints and is saved."""
    rng, record = random.Random(seed), GAINED.record()
    for _ in range(rng.choice([1, 1, 2, 5])):
        edit_json(record, rng)
    try:
        report = BuildReport.of_record(record)
    except ValueError:
        return
    assert str(report)
    assert BuildReport.of_record(report.record()) == report


@pytest.mark.parametrize(
    ("keys", "value", "says"),
    [
        (["format"], "l2route-index", "expected format l2route-report, got 'l2route-index'"),
        (["schema"], 2, "expected schema 1, got 2"),
        (["steps"], {}, r"expected steps of the report as a list, got \{\}"),
        (["steps"], [], "expected 1 to 100 steps, got 0"),
        (["steps", 2], 5, r"expected steps of the report \[2\] as an object, got 5"),
        (["steps", 0, "decision"], "lost", "among kept, not kept, skipped, got 'lost'"),
        (["steps", 0, "name"], "\ud800", "expected name of steps .* as text"),
        (["steps", 0, "seconds"], float("nan"), "seconds of .* as a finite number, got nan"),
        (["steps", 0, "seconds"], True, "seconds of .* as a finite number, got True"),
        (["steps", 0, "cost", "recall"], 1.5, "expected recalls and shares from 0 to 1"),
        (["steps", 0, "cost", "microseconds"], 0, "expected at least 0.001 microseconds, got 0"),
        (["n_vectors"], -1, "n_vectors of the report as a whole number of at least 0, got -1"),
        (["n_vectors"], 1.0, "n_vectors of the report as a whole number"),
        (["recipe", "metric"], "taxi", "expected metric of recipe .* got 'taxi'"),
        (["recipe", "recall"], 2, "expected a recall"),
        (["setting", "ef"], 5, "either ef or slack"),
        (["doubts"], [None], r"expected doubts of the report \[0\] as text, got None"),
    ],
)
def test_a_bad_value_is_named(keys: list[str | int], value: object, says: str) -> None:
    """The error says which value was expected, and what came."""
    record = GAINED.record()
    box: Any = record
    for key in keys[:-1]:
        box = box[key]
    box[keys[-1]] = value
    with pytest.raises(ValueError, match=says):
        BuildReport.of_record(record)


def test_missing_keys() -> None:
    """A key without default has to be there; unknown keys are ignored."""
    record = GAINED.record()
    assert BuildReport.of_record({**record, "later": 1}) == GAINED
    del record["steps"][0]["decision"]
    assert BuildReport.of_record(record) == GAINED
    del record["n_vectors"]
    with pytest.raises(ValueError, match="expected n_vectors of the report, got none"):
        BuildReport.of_record(record)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (b"[1, 2]", "expected format l2route-report, got"),
        (b"", "expected JSON"),
    ],
)
def test_files_that_are_no_report(tmp_path: Path, content: bytes, says: str) -> None:
    """The error names the file, and says what was expected."""
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"report\.json: {says}"):
        BuildReport.load(path)


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ([], "expected a report as an object, got list"),
        ("x", "expected a report as an object, got str"),
        ({"a": [[[[[[[[[1]]]]]]]]]}, "expected a report of at most 8 levels"),
        ({"a": float("inf")}, "expected finite numbers in a report, got inf"),
    ],
)
def test_an_index_with_a_forged_report_is_refused(
    tmp_path: Path, report: object, says: str
) -> None:
    """An index whose report is no plain object is refused when it is loaded."""
    l2route.RoutingIndex.build(draw(50)).save(tmp_path)
    meta = json.loads((tmp_path / "meta.json").read_text())
    (tmp_path / "meta.json").write_bytes(signed({**meta, "report": report}))
    with pytest.raises(ValueError, match=says):
        l2route.load(tmp_path)


def test_a_report_of_a_later_version_does_not_keep_an_index_from_loading(tmp_path: Path) -> None:
    """Only `BuildReport.load` refuses a schema that it does not know."""
    index = l2route.RoutingIndex.build(draw(50))
    index.keep_build_record({"format": "l2route-report", "schema": 9})
    index.save(tmp_path)
    assert len(l2route.load(tmp_path)) == 50
    with pytest.raises(ValueError, match="expected schema 1, got 9"):
        BuildReport.load(tmp_path)
    with pytest.raises(ValueError, match="expected plain values in a report, got set"):
        index.keep_build_record({"a": set()})
