"""Laws of ids: any numbers find their slots, whichever others come and go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from l2route.index import RoutingIndex

IDS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.builds(lambda step, bits: step << bits, st.integers(-8, 8), st.integers(0, 59)),
    st.integers(0, 60),
).filter(lambda id_: id_ != -1)


@given(st.lists(st.tuples(st.booleans(), st.lists(IDS, unique=True, max_size=40)), max_size=8))
def test_ids_find_their_vectors(changes: list[tuple[bool, list[int]]]) -> None:
    """After additions and deletions, an index has the ids that a dict has, with their vectors."""
    index, model, n_added = RoutingIndex.empty(1), dict[int, float](), 0
    for adds, ids in changes:
        if adds:
            new = [id_ for id_ in ids if id_ not in model]
            numbers = np.arange(n_added, n_added + len(new))
            index.add(numbers[:, None], new)
            model |= dict(zip(new, numbers.tolist(), strict=True))
            n_added += len(new)
        else:
            gone = [id_ for id_ in model if id_ in ids or id_ % 3 == 0]
            index.delete(gone)
            model = {id_: number for id_, number in model.items() if id_ not in gone}
        assert set(index) == set(model)
        assert all((id_ in index) == (id_ in model) for id_ in ids)
        known = np.array(list(model), dtype=np.int64)
        np.testing.assert_array_equal(index.vectors(known)[:, 0], list(model.values()))
