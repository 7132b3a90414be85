"""The law of `require`."""

import pytest

from l2route.files.require import require


def test_an_error_says_what_was_expected_and_what_came() -> None:
    """`require` raises "expected X, got Y" if the condition is false, else does nothing."""
    require(True, "a metric", "l3")
    with pytest.raises(ValueError, match=r"^expected a metric, got 'l3'$"):
        require(False, "a metric", "l3")
