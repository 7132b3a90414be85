"""Law of the check that raises."""

import pytest

from l2route.files.require import require


def test_an_error_says_what_was_expected_and_what_came() -> None:
    """Nothing happens if the condition holds."""
    require(True, "a metric", "l3")
    with pytest.raises(ValueError, match=r"^expected a metric, got 'l3'$"):
        require(False, "a metric", "l3")
