"""Laws of the built wheels. `make wheel` builds them, `make wheel-test` runs these tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from signal import SIGILL

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from l2route import _core
from l2route.extras import install
from wheel_environments import SMOKE, VERSIONS, Environment, find_python, make_environment

if "L2ROUTE_WHEELS" not in os.environ:
    pytest.skip("`make wheel-test` runs them", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]
BUILD_REQUIREMENTS: list[str] = [*PROJECT["build-system"]["requires"], "ninja"]
CONSTRAINTS = str(ROOT / "build" / "versions.txt")
"""The versions of constraints.txt without hashes: wheels that were just built have none."""
DIST = Path(os.environ["L2ROUTE_WHEELS"]).resolve()
WHEELS = sorted(DIST.glob("*.whl"))
OLDEST_GLIBC = (2, 28)
SYSTEM = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux-x86-64)\.so\.\d+")
"""Libraries of glibc itself."""
CORE_ALONE = SMOKE.with_name("core_alone.py")
PROCESSORS = {"Haswell": "avx2,portable", "Nehalem": "portable"}
"""Emulated processors with AVX2 and without, and the levels that the core finds on them. Nehalem is
the oldest that numpy's wheels run on (x86-64-v2)."""
AVX2_INSTRUCTION = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("c5fdefc0 c5f877 c3"))  # vpxor of 256 bits, vzeroupper, return
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
FIRST_PROCESSOR = "Opteron_G1"
"""A processor of 2003, with SSE2 alone."""


def tags_of(wheel: Path) -> frozenset[Tag]:
    """The tags of a wheel."""
    return parse_wheel_filename(wheel.name)[3]


def wheel_for(version: str) -> Path:
    """The wheel that an interpreter of this version takes."""
    kind = "cp311-cp311" if version == "3.11" else "cp312-abi3"
    (wheel,) = [each for each in WHEELS if kind in each.name]
    return wheel


Install = Callable[..., Environment]
"""Makes an environment for a version of Python, with other requirements beside the wheel; once."""


@pytest.fixture(scope="module", autouse=True)
def versions() -> None:
    """Write the versions without hashes."""
    pinned = re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    Path(CONSTRAINTS).parent.mkdir(exist_ok=True)
    Path(CONSTRAINTS).write_text("\n".join(pinned))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Environments with a wheel, by default with the pinned versions of what it needs."""

    @cache
    def make(version: str, *others: str) -> Environment:
        python = find_python(version)
        if python is None:
            pytest.skip(f"no Python {version} here")
        words = others or ("-c", CONSTRAINTS)
        root = tmp_path_factory.mktemp("environment") / version
        return make_environment(python, root, [*words, str(wheel_for(version))])

    return make


@pytest.fixture(scope="module")
def emulator() -> str:
    """The path of the emulator."""
    found = shutil.which("qemu-x86_64")
    if found is None:
        pytest.skip("no qemu-x86_64 here; Debian has it in qemu-user")
    return found


def test_one_wheel_for_each_abi() -> None:
    """There is a wheel for Python 3.11, and one with the stable ABI for all later versions."""
    kinds = {(tag.interpreter, tag.abi) for wheel in WHEELS for tag in tags_of(wheel)}
    assert kinds == {("cp311", "cp311"), ("cp312", "abi3")}
    assert len(WHEELS) == 2


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_wheel_runs_on_old_systems(wheel: Path) -> None:
    """A wheel needs glibc 2.28 (2018) or an older one, and no other library."""
    for tag in tags_of(wheel):
        found = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag.platform)
        assert found is not None, tag
        assert (int(found[1]), int(found[2])) <= OLDEST_GLIBC
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        with archive.open(name) as file:
            section = ELFFile(file).get_section_by_name(".dynamic")
            assert isinstance(section, DynamicSection)
            needed = [each.needed for each in section.iter_tags("DT_NEEDED")]
    assert [each for each in needed if not SYSTEM.fullmatch(each)] == []


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_wheel_has_all_files(wheel: Path) -> None:
    """A wheel has all files of the package, the core, the licence and the command."""
    package = ROOT / "src"
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    own = {name for name in names if ".dist-info/" not in name and not name.endswith(".so")}
    assert own == {name for name in files if "__pycache__" not in name}
    info = {name.split("/", 1)[1] for name in names if ".dist-info/" in name}
    assert info >= {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_core_keeps_to_the_stable_abi(version: str) -> None:
    """Every symbol of the core is in the stable ABI of 3.12."""
    command = [sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.12"]
    subprocess.run([*command, wheel_for(version)], check=True, timeout=120)


@pytest.mark.parametrize("version", VERSIONS)
def test_installed_package_works(installed: Install, version: str) -> None:
    """An installed wheel builds, searches, changes, saves and loads, at every SIMD level."""
    environment = installed(version)
    printed = environment.run(SMOKE)
    assert str(environment.core) in printed
    assert "all checks passed" in printed


def test_oldest_dependencies_suffice(installed: Install) -> None:
    """The package works with the oldest versions of what it says it needs."""
    oldest = [each.replace(">=", "==") for each in DEPENDENCIES]
    assert "all checks passed" in installed("3.11", *oldest).run(SMOKE)


@pytest.mark.parametrize("version", VERSIONS)
def test_extras_are_installed_as_messages_say(installed: Install, version: str) -> None:
    """The command of messages finds the installed package, and adds what it lacks."""
    *command, requirement = install("hdf5").split()
    assert command == ["pip", "install"]
    words = ("-m", "pip", "install", "--dry-run", "--only-binary", ":all:")
    printed = installed(version).run(*words, requirement.strip('"'))
    assert re.search("Would install.* h5py-", printed)
    assert not re.search("Would install.* l2route-", printed)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_package_works_on_other_processors(
    installed: Install, emulator: str, version: str, processor: str
) -> None:
    """A wheel works on processors without AVX-512, and without AVX2."""
    words = ("--emulated", "--levels", PROCESSORS[processor])
    printed = installed(version).run(SMOKE, *words, before=(emulator, "-cpu", processor))
    assert "all checks passed" in printed


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_core_works_on_the_first_processor(installed: Install, emulator: str, version: str) -> None:
    """The core itself needs no more than SSE2, which every x86-64 processor has."""
    environment = installed(version)
    before = (emulator, "-cpu", FIRST_PROCESSOR)
    assert "right" in environment.run(CORE_ALONE, environment.core, "portable", before=before)


@pytest.mark.parametrize(("processor", "signal"), [("Haswell", 0), ("Nehalem", SIGILL)])
def test_emulated_processors_lack_what_they_should(
    emulator: str, processor: str, signal: int
) -> None:
    """An AVX2 instruction runs on Haswell and is illegal on Nehalem: tests on them can fail."""
    command = [emulator, "-cpu", processor, sys.executable, "-c", AVX2_INSTRUCTION]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal


def test_sdist_builds_without_network(tmp_path: Path) -> None:
    """Given its build requirements, the source archive is built and installed offline."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False).returncode != 0:
        pytest.skip("no network namespaces here")
    (archive,) = DIST.glob("*.tar.gz")
    environment = make_environment(
        Path(sys.executable), tmp_path / "offline", ["-c", CONSTRAINTS, *BUILD_REQUIREMENTS]
    )
    command = [unshare, "-rn", environment.python, "-m", "pip", "install", "--no-index"]
    subprocess.run(
        [*command, "--no-deps", "--no-build-isolation", archive], check=True, timeout=600
    )
    levels = ",".join(_core.simd_levels())
    assert levels in environment.run(CORE_ALONE, environment.core, levels)
