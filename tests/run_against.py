"""Run pytest against the package in a directory instead of the one that is installed.

python tests/run_against.py DIRECTORY [pytest's arguments]
"""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    directory = Path(sys.argv[1]).resolve()
    # An editable install redirects imports before sys.path is asked.
    sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
    sys.path.insert(0, str(directory))
    import l2route._core

    if not Path(l2route._core.__file__).is_relative_to(directory):
        sys.exit(f"expected the core of {directory}, got {l2route._core.__file__}")
    sys.exit(pytest.main(sys.argv[2:]))
