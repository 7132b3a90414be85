"""Laws of tables as text, Markdown, JSON and in a terminal."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from rich.console import Console

from l2route.evaluation.tables import MISSING, Row, as_json, as_markdown, rich_table

PLAIN = Row("plain NSW", 128, None, 0.351249, 0.4, 127.96, 9.25, 81.04)
LEARNED = Row("learned routing", 1024, None, 0.7, 0.79, 1021.5, 12.0, 503.4)
NO_LIMITS = replace(PLAIN, budget=None)


def shown(rows: list[Row], width: int) -> str:
    """What a terminal of this width shows of the rich table."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(rich_table(rows))
    return capture.get()


def test_markdown_is_a_github_table() -> None:
    """The table has headings, a rule that aligns numbers right, and equally many cells per line."""
    lines = as_markdown([PLAIN, LEARNED], "SIFT").splitlines()
    assert lines[:2] == ["SIFT", ""]
    assert [line.count("|") for line in lines[2:]] == [8] * 4
    rules = lines[3].strip("| ").split(" | ")
    assert not rules[0].endswith(":")
    assert all(set(rule[:-1]) == {"-"} and rule.endswith(":") for rule in rules[1:])


def test_markdown_escapes_names() -> None:
    """A bar or a line break in a method's name does not break the table."""
    line = as_markdown([replace(PLAIN, method="a|b\nc")]).splitlines()[2]
    assert line.startswith("| a\\|b c |")


@pytest.mark.parametrize("show", [as_markdown, lambda rows: shown(rows, 120)])
def test_limits_are_shown_only_if_any_row_has_them(show: Callable[[list[Row]], str]) -> None:
    """The columns budget and ef are shown only if some row has a value; other rows show a dash."""
    words = show([NO_LIMITS]).replace("|", " ").split()
    assert "budget" not in words
    assert "ef" not in words
    both = show([PLAIN, replace(NO_LIMITS, ef=64)]).replace("|", " ").split()
    assert {"budget", "ef", "128", "64", MISSING} <= set(both)


def test_caption_is_optional() -> None:
    """Without a caption headings come first; without rows there are only headings and a rule."""
    assert as_markdown([PLAIN]).startswith("| method")
    assert len(as_markdown([]).splitlines()) == 2


def test_json_has_rows_by_field_beside_the_context() -> None:
    """JSON has every field by its name, rounded, and the context's keys beside the rows."""
    content = json.loads(as_json([PLAIN], {"dataset": "sift", "seed": 7}))
    assert content["dataset"] == "sift"
    assert content["seed"] == 7
    assert list(content["rows"][0]) == [field.name for field in fields(Row)]
    assert Row(**content["rows"][0]) == replace(PLAIN, recall_at_1=0.3512)


def test_json_has_null_for_nan_and_infinity() -> None:
    """NaN and infinity become null everywhere, so that every parser can read the file."""
    row = replace(PLAIN, n_computed=float("nan"), n_hops=float("inf"))
    context = {"error": float("nan"), "nested": {"losses": (1.0, float("-inf"))}}
    content = json.loads(as_json([row], context), parse_constant=pytest.fail)
    assert content["rows"][0]["n_computed"] is None
    assert content["rows"][0]["n_hops"] is None
    assert content["error"] is None
    assert content["nested"] == {"losses": [1.0, None]}


def test_json_takes_numbers_of_numpy() -> None:
    """Numbers of numpy are rounded and written as JSON numbers."""
    row = replace(PLAIN, recall_at_1=cast(float, np.float32(0.1)), n_hops=np.float64(2.0))
    content = json.loads(as_json([row], {"seed": np.int64(3), "budgets": np.array([1, 2])}))
    assert content["rows"][0]["recall_at_1"] == 0.1
    assert content["seed"] == 3
    assert content["budgets"] == [1, 2]


def test_json_context_may_not_have_rows() -> None:
    """A context with a key "rows" is refused; one would overwrite the other."""
    with pytest.raises(ValueError, match='expected a context without the key "rows"'):
        as_json([PLAIN], {"rows": 1})


def test_json_refuses_values_that_are_not_json() -> None:
    """A context value that JSON cannot express raises a TypeError."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        as_json([PLAIN], {"path": Path("/")})


def test_missing_values_are_dashes() -> None:
    """NaN is shown as a dash."""
    text = as_markdown([replace(PLAIN, n_computed=float("nan"))])
    assert MISSING in text
    assert "nan" not in text


def test_terminal_of_80_columns_shows_the_whole_table() -> None:
    """The rich table fits 80 columns without truncating names or numbers."""
    text = shown([PLAIN, LEARNED], 80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("learned routing", "recall@10", "µs/query", "1021.5", "503.4"):
        assert word in text


def test_terminal_shows_brackets_in_names() -> None:
    """A method's name is text, not rich's markup."""
    assert "PCA [d=25]" in shown([replace(PLAIN, method="PCA [d=25]")], 100)
