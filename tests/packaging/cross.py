"""Compile the core for systems that this machine is not: `make cross`.

    python cross.py [--link] [TARGET …]      # as zig names them; all of TARGETS by default

zig brings the headers and libraries of every system. With --link it compiles its C++ library for
the target first, which takes minutes, and links the module as on the real system, with Python's
symbols left open. Nothing is run. The stable ABI is used if there is a Python 3.12, whose
headers are then taken; they are the same everywhere.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind
import ziglang

sys.path.insert(0, str(Path(__file__).parents[1]))
from wheel_environments import find_python  # beside the tests

ROOT = Path(__file__).parents[2]
TARGETS = (
    "x86_64-linux-gnu.2.28",
    "aarch64-linux-gnu.2.28",
    "aarch64-macos.11.0",
    "x86_64-macos.11.0",
)
ZIG = str(Path(ziglang.__file__).with_name("zig"))
NANOBIND = Path(nanobind.__file__).parent
HEADERS = (nanobind.include_dir(), str(NANOBIND / "ext" / "robin_map" / "include"))
INCLUDE = "import sysconfig; print(sysconfig.get_paths()['include'])"
FLAGS = (
    "-std=c++20",
    "-O0",
    "-fno-sanitize=undefined",
    "-fPIC",
    "-fvisibility=hidden",
    "-include",
    "cstdio",
)
STABLE_ABI = "-DPy_LIMITED_API=0x030C0000"
STRICT = ("-Wall", "-Wextra", "-Werror")


def python_flags() -> list[str]:
    """Options for Python's headers: those of 3.12 with the stable ABI, or of this interpreter."""
    python = find_python("3.12")
    command = [str(python or sys.executable), "-c", INCLUDE]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return ["-isystem", found.stdout.strip(), *([STABLE_ABI] if python else [])]


def sources() -> list[Path]:
    """The core's files, and nanobind's."""
    own = sorted((ROOT / "cpp" / "bindings").glob("*.cpp"))
    return [*own, NANOBIND / "src" / "nb_combined.cpp"]


def compile_source(source: Path, target: str, directory: Path, python: list[str]) -> Path:
    """Compile a file for a target, the core's own without warnings; return the object file."""
    made = directory / f"{source.stem}.o"
    headers = [word for path in HEADERS for word in ("-isystem", path)]
    warnings = STRICT if source.is_relative_to(ROOT / "cpp") else ("-w",)
    flags = (*FLAGS, *warnings, f"-I{ROOT / 'cpp'}", *headers, *python)
    command = [ZIG, "c++", "-target", target, *flags, "-c", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def link(objects: list[Path], target: str, directory: Path) -> Path:
    """Link object files to a Python module for a target."""
    made = directory / "_core.so"
    open_symbols = ("-undefined", "dynamic_lookup") if "macos" in target else ()
    words = ("-target", target, "-shared", *open_symbols, *map(str, objects), "-o", str(made))
    subprocess.run([ZIG, "c++", *words], check=True)
    return made


def build(target: str, python: list[str], is_linked: bool) -> str:
    """Compile for a target, and link if asked to; return what it took."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        directory = Path(scratch)
        tasks = [
            pool.submit(compile_source, source, target, directory, python) for source in sources()
        ]
        made = [task.result() for task in tasks]
        results = [link(made, target, directory)] if is_linked else made
        size = sum(each.stat().st_size for each in results)
    seconds = time.monotonic() - begin
    return f"{target}: {len(made)} files, {size / 1e6:.1f} MB, {seconds:.0f} s"


def main() -> None:
    """Compile for every target, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help=", ".join(TARGETS))
    parser.add_argument("--link", action="store_true", help="link too")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"expected targets of {', '.join(TARGETS)}, got {', '.join(unknown)}")
    python = python_flags()
    print(*python)
    for target in given.targets:
        print(build(target, python, given.link), flush=True)


if __name__ == "__main__":
    main()
