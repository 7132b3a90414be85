"""Versions and machine of a measurement."""

import hashlib
import os
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from l2route import _core

PACKAGES = (
    *("l2route", "numpy", "faiss-cpu", "torch", "hnswlib", "annoy", "usearch", "pynndescent"),
    *("rabitqlib", "scann"),
)
"""Packages whose version may change a result."""


def context() -> dict[str, Any]:
    """Versions of packages, and the machine."""
    return {"versions": versions(), "machine": machine()}


@cache
def versions() -> dict[str, str]:
    """Versions of the installed PACKAGES, and a hash of l2route's own files."""
    known = {"python": platform.python_version(), "l2route's code": _code()}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def machine() -> dict[str, Any]:
    """System, processor, cores and SIMD level."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "n_cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "simd": _core.simd_levels()[0],
    }


def _code() -> str:
    """Hash of the package's own files, since its version does not change with every edit."""
    package = Path(_core.__file__).parent, Path(__file__).parent.parent
    files = {
        file.name if file.suffix == ".so" else str(file.relative_to(package[1])): file
        for file in (*package[0].glob("_core*.so"), *package[1].rglob("*.py"))
    }
    hashed = hashlib.sha256()
    for name in sorted(files):
        hashed.update(name.encode() + files[name].read_bytes())
    return hashed.hexdigest()[:12]


def _processor() -> str:
    """The processor's name, or "unknown"."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
