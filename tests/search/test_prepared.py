"""Laws of plans: prepared searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from indexes import QUERIES, built, same_results
from l2route.index import RoutingIndex
from test_index import BAD_RERANKS, BAD_SEARCHES


def test_a_plan_answers_as_a_search(index: RoutingIndex) -> None:
    """A plan answers like a search with its limits: single or batch, any dtype and threads."""
    for space in index.spaces:
        for limit in ({"budget": 90, "rerank": 9}, {"ef": 20}, {"ef": 30, "rerank": 12}, {}):
            options: dict[str, Any] = {"k": 4, "space": space.name, **limit}
            try:
                expected = index.search(QUERIES, **options)
            except ValueError:
                continue  # too small a budget for the space
            for n_threads in (0, 1, 3):
                plan = index.plan(**options, n_threads=n_threads)
                assert same_results(plan(QUERIES), expected)
                assert same_results(plan(QUERIES.astype(np.float64), trace=True), expected)
                alone = [plan(query) for query in QUERIES]
                np.testing.assert_array_equal([one.ids[0] for one in alone], expected.ids)


@pytest.mark.parametrize("fault", BAD_SEARCHES | BAD_RERANKS)
def test_a_bad_plan_is_refused(fault: str) -> None:
    """Wrong arguments of a plan give the error messages of a search."""
    given_, message = (BAD_SEARCHES | BAD_RERANKS)[fault]
    options = dict(given_)
    queries = options.pop("queries", QUERIES)
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        built(pca_dim=5).plan(**options)(queries)
