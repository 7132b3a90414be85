"""Run a program with the package in a given directory instead of the installed one.

python tests/run_against.py DIRECTORY MODULE-OR-SCRIPT [its arguments]
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    directory, program = Path(sys.argv[1]).resolve(), sys.argv[2]
    # An editable install redirects imports before sys.path is searched.
    sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
    sys.path.insert(0, str(directory))
    import l2route._core

    if not Path(l2route._core.__file__).is_relative_to(directory):
        sys.exit(f"expected the core of {directory}, got {l2route._core.__file__}")
    sys.argv = sys.argv[2:]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
