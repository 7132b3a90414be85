"""Compile and link the core for systems that this machine is not: `make cross`.

    python cross.py [TARGET …]      # as zig names them; all of TARGETS by default

zig brings the headers and libraries of every system. The module is linked as on the real one, with
Python's symbols left open, but not run. Python's headers are those of this machine's interpreter:
the stable ABI's are the same everywhere.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind
import ziglang

ROOT = Path(__file__).parents[2]
TARGETS = (
    "x86_64-linux-gnu.2.28",
    "aarch64-linux-gnu.2.28",
    "aarch64-macos.11.0",
    "x86_64-macos.11.0",
)
ZIG = str(Path(ziglang.__file__).with_name("zig"))
NANOBIND = Path(nanobind.__file__).parent
HEADERS = (
    nanobind.include_dir(),
    str(NANOBIND / "ext" / "robin_map" / "include"),
    sysconfig.get_paths()["include"],
)
FLAGS = ("-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'cpp'}")
STRICT = ("-Wall", "-Wextra", "-Werror")


def sources() -> list[Path]:
    """The core's files, and nanobind's."""
    own = sorted((ROOT / "cpp" / "bindings").glob("*.cpp"))
    return [*own, NANOBIND / "src" / "nb_combined.cpp"]


def compile_source(source: Path, target: str, directory: Path) -> Path:
    """Compile a file for a target, the core's own without warnings; return the object file."""
    made = directory / f"{source.stem}.o"
    headers = [word for path in HEADERS for word in ("-isystem", path)]
    warnings = STRICT if source.is_relative_to(ROOT / "cpp") else ("-w",)
    words = ("-target", target, *FLAGS, *warnings, *headers, "-c", str(source), "-o", str(made))
    subprocess.run([ZIG, "c++", *words], check=True)
    return made


def link(objects: list[Path], target: str, directory: Path) -> Path:
    """Link object files to a Python module for a target."""
    made = directory / "_core.so"
    open_symbols = ("-undefined", "dynamic_lookup") if "macos" in target else ()
    words = ("-target", target, "-shared", *open_symbols, *map(str, objects), "-o", str(made))
    subprocess.run([ZIG, "c++", *words], check=True)
    return made


def main() -> None:
    """Compile and link for every target, and print what it took."""
    unknown = set(sys.argv[1:]) - set(TARGETS)
    if unknown:
        sys.exit(f"expected targets of {', '.join(TARGETS)}, got {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        for target in sys.argv[1:] or TARGETS:
            begin, directory = time.monotonic(), Path(scratch) / target
            directory.mkdir()
            files = sources()
            made = list(
                pool.map(compile_source, files, [target] * len(files), [directory] * len(files))
            )
            size = link(made, target, directory).stat().st_size
            seconds = time.monotonic() - begin
            print(f"{target}: {len(made)} files, {size / 1e6:.1f} MB, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
