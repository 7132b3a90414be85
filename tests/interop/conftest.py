"""Vectors for the tests of imports."""

import numpy as np
import pytest
from numpy.typing import NDArray

from imported import QUERIES, VECTORS


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    """Vectors without ties [600, 10]."""
    return VECTORS


@pytest.fixture(scope="module")
def queries() -> NDArray[np.float32]:
    """Queries [50, 10]."""
    return QUERIES
