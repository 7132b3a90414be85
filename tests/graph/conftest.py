"""Vectors for the tests of graphs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    """Vectors without ties [500, 12]."""
    return np.random.default_rng(0).normal(size=(500, 12)).astype(np.float32)
