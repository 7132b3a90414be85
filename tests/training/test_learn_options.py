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
    SEVERAL,
    Goal,
    LearnKeywords,
    LearnOptions,
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
        ({"budget": (96, 8)}, "expected rerank below the budget, 8, got 8"),
        ({"budget": (96, 0)}, "expected budget of at least 1, got 0"),
        ({"budget": ()}, r"expected budget of at least one number, got \(\)"),
        ({"k": (1, 9)}, r"expected k in \[1, 8\], the rerank, got 9"),
        ({"budget": None, "rerank": None, "recall": 0.9, "k": (1, 2)}, r"expected one k with a"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, Any], message: str) -> None:
    """The error for an option out of range names it, the range and the value."""
    with pytest.raises(ValueError, match=message):
        replace(OPTIONS, **changes)


def test_ranges_are_of_options() -> None:
    """Every name in a table of ranges is a field."""
    assert {*COUNTS, *SEVERAL, *LEAST, *ABOVE_ZERO, *FINITE} <= set(NAMES)


@pytest.mark.parametrize(
    ("given", "goals"),
    [
        ({"budget": 256}, [Goal(256, 12, 1)]),
        ({"budget": 256, "k": 10}, [Goal(256, 25, 10)]),
        ({"budget": 512}, [Goal(512, 25, 1)]),
        ({"budget": 512, "k": 60}, [Goal(512, 60, 60)]),
        ({"budget": 256, "k": 3, "rerank": 3}, [Goal(256, 3, 3)]),
        ({"budget": np.int64(100)}, [Goal(100, 8, 1)]),
        ({"budget": [100]}, [Goal(100, 8, 1)]),
        ({"budget": 100, "k": (10, 1)}, [Goal(100, 8, 1), Goal(100, 10, 10)]),
        ({"k": 3}, [Goal(128, 12, 3), Goal(256, 25, 3), Goal(512, 51, 3)]),
        (
            {"budget": np.array([200, 50, 200])},
            [Goal(50, 8, 1), Goal(50, 10, 10), Goal(200, 10, 1), Goal(200, 20, 10)],
        ),
        (
            {"budget": (50, 100), "rerank": 12},
            [Goal(50, 12, 1), Goal(50, 12, 10), Goal(100, 12, 1), Goal(100, 12, 10)],
        ),
    ],
)
def test_goals_are_every_k_within_every_budget(given: dict[str, Any], goals: list[Goal]) -> None:
    """By default a tenth of the budget is reranked, or a 20th, and several budgets have two k."""
    assert list(LearnOptions(**given).goals) == goals


def test_default_budgets_pay_for_the_projection() -> None:
    """They are at least twice the cost of projection and rerank; given ones stay as they are."""
    options = LearnOptions()
    assert options.fitted(100, 1000).budgets == options.budgets == (128, 256, 512)
    assert replace(options, dim=100).fitted(100, 1000).budgets == (128, 256, 512)
    assert replace(options, dim=120).fitted(384, 1000).budgets == (264, 512)
    assert replace(options, dim=256).fitted(384, 1000).goals == (
        Goal(536, 26, 1),
        Goal(536, 53, 10),
    )
    assert replace(options, dim=120, budget=(128, 256)).fitted(384, 1000).budgets == (128, 256)
    assert options.fitted(100, 9).ks == (1,)
    fitted = replace(options, dim=120).fitted(384, 1000)
    assert fitted.fitted(384, 1000) == fitted
    assert LearnOptions(recall=0.9).fitted(100, 1000).ks == (1,)


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
