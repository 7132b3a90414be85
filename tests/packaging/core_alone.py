"""The core without numpy and faiss, for processors that these two do not run on.

    python core_alone.py FILE-OF-THE-CORE LEVELS    # such as l2route/_core.abi3.so portable

Arrays come and go as memoryviews. Scores are compared with sums that Python adds up.
"""

import importlib.util
import random
import sys
from array import array
from types import ModuleType
from typing import Any

N, DIM = 7, 48


def without_numpy() -> None:
    """Let the core return memoryviews where it asks numpy for arrays."""
    numpy: Any = ModuleType("numpy")
    numpy.array = numpy.asarray = lambda exported, copy=None: memoryview(exported)
    sys.modules["numpy"] = numpy


def load_core(path: str) -> Any:
    """Import the core from its file, without the package around it."""
    spec = importlib.util.spec_from_file_location("_core", path)
    assert spec is not None
    assert spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    return core


def matrix(values: array) -> memoryview:  # type: ignore[type-arg] # of floats or bytes
    """Values as rows [N, DIM], or of codes [N, bytes of a row]."""
    view = memoryview(values)
    return view.cast("B").cast(view.format, (N, len(values) // N))  # type: ignore[call-overload]


def main() -> None:
    """Score rows at every level."""
    without_numpy()
    core, expected = load_core(sys.argv[1]), sys.argv[2]
    levels = ",".join(core.simd_levels())
    assert levels == expected, f"expected levels {expected}, got {levels}"
    rng = random.Random(0)
    rows = [[rng.gauss(0, 1) for _ in range(DIM)] for _ in range(N)]
    query = [rng.gauss(0, 1) for _ in range(DIM)]
    floats = matrix(array("f", [value for row in rows for value in row]))
    for level in core.simd_levels():
        scores = core.Rows(floats, "l2", simd=level).scores(memoryview(array("f", query)))
        for score, row in zip(scores.tolist(), rows, strict=True):
            true = sum((a - b) ** 2 for a, b in zip(row, query, strict=True))
            assert abs(score - true) < 1e-4 * true, f"{level}: expected {true}, got {score}"
    print(f"scores are right at {levels}")


if __name__ == "__main__":
    main()
