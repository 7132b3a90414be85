"""Vectors for the tests of imports, and how coroutines are run."""

import asyncio
from inspect import iscoroutinefunction

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


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines: LangChain's suite has some, without a mark for a plugin."""
    if not iscoroutinefunction(pyfuncitem.function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
