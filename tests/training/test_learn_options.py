"""Laws of the options of learning: ranges, defaults, keywords, descriptions."""

from dataclasses import fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest

from l2route import RoutingIndex
from l2route.training.options import (
    ABOVE_ZERO,
    COUNTS,
    FINITE,
    LEAST,
    LearnKeywords,
    LearnOptions,
    Spending,
    with_keywords,
)
from learning import OPTIONS, words

NAMES = [each.name for each in fields(LearnOptions)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "tree"}, "expected model filter, gcn, ffn, got 'tree'"),
        ({"objective": "luck"}, "expected objective .*, got 'luck'"),
        ({"budget": 0}, "expected budget of at least 1, got 0"),
        ({"rerank": 0}, "expected rerank of at least 1, got 0"),
        ({"minutes": 0}, "expected minutes above 0, got 0"),
        ({"steps": 0}, "expected steps of at least 1, got 0"),
        ({"dim": 0}, "expected dim of at least 1, got 0"),
        ({"hidden_dim": 0}, "expected hidden_dim of at least 1, got 0"),
        ({"memory_gb": float("inf")}, "expected a finite memory_gb, got inf"),
        ({"temperature": float("nan")}, "expected temperature of at least 0, got nan"),
        ({"k": 9}, r"expected k in \[1, 8\], the rerank, got 9"),
        ({"rerank": 96}, "expected rerank below the budget, 96, got 96"),
        ({"recall": 0.9}, "expected a recall, or else budget and rerank, got both"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, Any], message: str) -> None:
    """The error for an option out of range names it, the range and the value."""
    with pytest.raises(ValueError, match=message):
        replace(OPTIONS, **changes)


def test_ranges_are_of_options() -> None:
    """Every name in a table of ranges is a field."""
    assert {*COUNTS, *LEAST, *ABOVE_ZERO, *FINITE} <= set(NAMES)


@pytest.mark.parametrize(
    ("given", "spending"),
    [
        ({}, Spending(256, 8)),
        ({"k": 10}, Spending(256, 10)),
        ({"k": 3}, Spending(256, 8)),
        ({"k": 3, "rerank": 3}, Spending(256, 3)),
        ({"budget": np.int64(100)}, Spending(100, 8)),
    ],
)
def test_budget_and_rerank_have_defaults(given: dict[str, Any], spending: Spending) -> None:
    """By default the budget is 256 and the rerank max(8, k)."""
    assert LearnOptions(**given).spending == spending


def test_keywords_are_the_fields() -> None:
    """`learn` takes every option as a keyword of the field's type; a model may also be custom."""
    keywords, types = LearnKeywords.__annotations__, get_type_hints(LearnOptions)
    assert list(keywords) == NAMES
    for name in NAMES:
        assert name == "model" or keywords[name] == types[name]


def test_keywords_override_options() -> None:
    """Keywords change the fields that they name, and no others."""
    options, model = with_keywords(LearnOptions(k=3, seed=5), {"k": 4, "model": "ffn"})
    assert options == LearnOptions(k=4, seed=5, model="ffn")
    assert model is None
    own = object()
    assert with_keywords(None, {"model": own}) == (LearnOptions(), own)


def test_unknown_keywords_are_named(index: RoutingIndex) -> None:
    """The error names the unknown keyword and lists all options."""
    with pytest.raises(
        TypeError, match=r"expected options of learning \(budget, .*\), got 'budgt'"
    ):
        index.learn(words().learn, budgt=3)
