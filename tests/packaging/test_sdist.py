"""Laws of the source archive: everything that a build needs, and nothing that lies about."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TOP = {
    "CHANGELOG.md",
    "CITATION.cff",
    "CMakeLists.txt",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "cpp",
    "examples",
    "pyproject.toml",
    "src",
}
STRAY = (
    "notes.txt",
    "dist/old.whl",
    ".venv/bin/python",
    "build/Release/_core.o",
    "src/l2route/_core.abi3.so",
    "src/l2route/data/__pycache__/vectors.cpython-311.pyc",
    "cpp/kernels/__pycache__/x.pyc",
)
DATA = ("demo/page.html", "demo/page.js", "demo/page.css")
"""Files of a page, as package data."""
BUILD = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the archive is made from, with stray files in it and with a page."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in (TOP - {"PKG-INFO"}) | {".gitignore", "Makefile"}:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    for name in (*STRAY, *(f"src/l2route/{each}" for each in DATA)):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("x")
    return copy


@pytest.fixture(scope="module")
def files(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the archive, below its directory."""
    target = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-c", BUILD, str(target)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True, timeout=60)
    with tarfile.open(target / f"l2route-{VERSION}.tar.gz") as archive:
        names = [member.name for member in archive.getmembers() if member.isfile()]
    assert {name.split("/")[0] for name in names} == {f"l2route-{VERSION}"}
    return {name.split("/", 1)[1] for name in names}


def test_archive_has_no_stray_files(files: set[str]) -> None:
    """Only the listed files and directories are in the archive, without what builds leave there."""
    assert {name.split("/")[0] for name in files} == TOP
    assert files & set(STRAY) == set()
    assert [name for name in files if name.endswith((".so", ".pyc", ".o"))] == []


def test_archive_has_the_whole_package(checkout: Path, files: set[str]) -> None:
    """All sources, types, experiments and other data of the package are in the archive."""
    for folder in ("src", "cpp", "examples"):
        paths = {str(path.relative_to(checkout)) for path in (checkout / folder).rglob("*.*")}
        assert {path for path in paths - set(STRAY) if (checkout / path).is_file()} <= files
    package = {name.removeprefix("src/l2route/") for name in files}
    assert package >= {"py.typed", "_core.pyi", "reproduce/experiments/table1.toml", *DATA}
    assert {"LICENSE", "CMakeLists.txt", "pyproject.toml", "cpp/bindings/module.cpp"} <= files


def test_archive_is_the_same_every_time(checkout: Path, tmp_path: Path) -> None:
    """Two archives of the same files are equal byte by byte."""
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", BUILD, str(tmp_path / name)]
        subprocess.run(command, cwd=checkout, check=True, capture_output=True, timeout=60)
        contents.append((tmp_path / name / f"l2route-{VERSION}.tar.gz").read_bytes())
    assert contents[0] == contents[1]
