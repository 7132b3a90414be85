"""Laws of the package's layers: modules import only from layers to their left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import l2route
from parsing import parsed

PACKAGE = Path(l2route.__file__).parent
LAYERS = (
    {"_core"},
    {"extras"},
    {"files"},
    {"data"},
    {"graph"},
    {"search"},
    {"rewiring"},
    {"models"},
    {"training"},
    {"state"},
    {"explain"},
    {"index"},
    {"recipe"},
    {"interop"},
    {"evaluation"},
    {"reproduce"},
    {"serve"},
    {"cluster"},
    {"cli"},
    {"__init__", "__main__"},
)
"""From left to right: a module or package imports only from layers before its own."""
USES_TORCH = {"models", "training", "reproduce"}
FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
"""Modules that can run code from a file."""


def layer_of(name: str) -> int:
    """The layer of a module or package of l2route; an unknown name is an error."""
    for at, layer in enumerate(LAYERS):
        if name in layer:
            return at
    raise AssertionError(f"{name} has no place in LAYERS")


def imported_names(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """Full names of everything that a module imports, at any place in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def upward_imports(tree: ast.Module, path: tuple[str, ...]) -> list[str]:
    """Forbidden imports of a module, which is given by its path below the package."""
    own = layer_of(path[0])
    package = ("l2route", *path[:-1])
    upward = []
    for name in imported_names(tree, package):
        parts = name.split(".")
        if parts[0] != "l2route" or parts[1:2] == ["__version__"]:
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        inside = target == path[0] and len(path) > 1
        if not inside and layer_of(target) >= own:
            upward.append(name)
    return upward


def modules() -> list[tuple[str, ...]]:
    """Every module, as its path below the package: ("evaluation", "tables")."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [path.relative_to(PACKAGE).with_suffix("").parts for path in paths]


def parse(path: tuple[str, ...]) -> ast.Module:
    """Parse the source of a module."""
    return parsed(PACKAGE.joinpath(*path).with_suffix(".py").read_text())


def test_modules_are_found() -> None:
    """The tests below see the modules of the package."""
    assert {("graph", "knn"), ("index",), ("evaluation", "tables")} <= set(modules())


@pytest.mark.parametrize("path", modules(), ids="/".join)
def test_module_imports_only_from_its_left(path: tuple[str, ...]) -> None:
    """A module imports only from layers to the left of its own."""
    assert upward_imports(parse(path), path) == []


@pytest.mark.parametrize(
    ("source", "n_upward"),
    [
        ("from l2route.data.vectors import Metric", 0),
        ("from l2route import _core", 0),
        ("import l2route.files.memory", 0),
        ("import numpy as np", 0),
        ("from l2route.index import load", 1),
        ("from l2route import index, files", 1),
        ("import l2route.search.searcher", 1),
        ("import l2route", 1),
        ("from l2route import RoutingIndex", None),
        ("from . import search", 0),
        ("from .. import search", 1),
        ("from ..index import load", 1),
        ("from ..data.vectors import Metric", 0),
        ("def f():\n    from l2route.cli.app import main", 1),
        ("from l2route.graph.graph import Graph", 0),
        ("from l2route.unheard_of import x", None),
    ],
)
def test_upward_imports_are_seen(source: str, n_upward: int | None) -> None:
    """Every form of import is detected, and unknown names are refused."""
    if n_upward is None:
        with pytest.raises(AssertionError, match="has no place"):
            upward_imports(ast.parse(source), ("graph", "knn"))
    else:
        assert len(upward_imports(ast.parse(source), ("graph", "knn"))) == n_upward


def test_siblings_in_a_package_may_import_each_other() -> None:
    """Modules of one package may import each other, and layers to the left."""
    source = "from . import tables\nfrom .metrics import recall\nfrom ..index import load"
    assert upward_imports(ast.parse(source), ("evaluation", "measure")) == []
    assert upward_imports(ast.parse("from ..cli import main"), ("evaluation", "measure")) != []


def depends_on(path: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Modules of the package that a module imports."""
    known = set(modules())
    found = set()
    for name in imported_names(parse(path), ("l2route", *path[:-1])):
        package, *parts = name.split(".")
        if package != "l2route":
            continue
        found |= {tuple(parts[:n]) for n in range(1, len(parts) + 1)} & known
    return found


def test_no_imports_go_in_circles() -> None:
    """There are no circular imports."""
    left = {path: depends_on(path) for path in modules()}
    while left:
        ready = {path for path, needs in left.items() if not needs & left.keys()}
        assert ready, f"these import each other: {sorted(left)}"
        left = {path: needs for path, needs in left.items() if path not in ready}


@pytest.mark.parametrize("path", modules(), ids="/".join)
def test_only_learning_imports_torch(path: tuple[str, ...]) -> None:
    """Only the packages of USES_TORCH import torch, so serving never does."""
    names = {name.split(".")[0] for name in imported_names(parse(path), ("l2route", *path[:-1]))}
    assert "torch" not in names or path[0] in USES_TORCH


@pytest.mark.parametrize("path", modules(), ids="/".join)
def test_no_file_can_run_code(path: tuple[str, ...]) -> None:
    """Nothing is unpickled: not by pickle modules, numpy or torch."""
    tree = parse(path)
    names = {name.split(".")[0] for name in imported_names(tree, ("l2route", *path[:-1]))}
    assert not names & FORBIDDEN
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        assert options.get("allow_pickle", "False") == "False", ast.unparse(call)
        if ast.unparse(call.func) == "torch.load":
            assert options.get("weights_only") == "True", ast.unparse(call)


@pytest.mark.parametrize("path", modules(), ids="/".join)
def test_names_are_imported_one_by_one(path: tuple[str, ...]) -> None:
    """No module uses `import *`."""
    assert not [
        name for name in imported_names(parse(path), ("l2route", *path[:-1])) if name.endswith(".*")
    ]


@pytest.mark.parametrize("path", modules(), ids="/".join)
def test_module_says_what_it_is(path: tuple[str, ...]) -> None:
    """Every module has a docstring."""
    assert ast.get_docstring(parse(path))
