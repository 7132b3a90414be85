"""The paper's experiments as data: the cells of a table, and what they are on other data."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from l2route.files.require import require
from l2route.graph.build import GRAPH_KINDS, GraphKind
from l2route.search.limits import left_for_routing
from l2route.training.options import MODELS, OBJECTIVES, ModelName, Objective

EXPERIMENTS = ("table1", "routing", "ablation", "sota")
"""What there is a file for, in the order that `all` runs them."""
TOY_PICTURE = Path("toy") / "toy.png"
"""Where a run of all experiments keeps the toy example's picture."""
SpaceKind = Literal["original", "pca", "learned"]
GraphSpace = Literal["original", "pca", "better"]


@dataclass(frozen=True, slots=True)
class Method:
    """How a row of a table is made."""

    label: str
    """What tables call it."""
    graph: GraphKind = "nsw"
    graph_space: GraphSpace = "original"
    """Vectors that the graph is built on where routing vectors are shorter: the original ones, as
    short ones by PCA, or those with which plain search does better on training queries."""
    space: SpaceKind = "original"
    """What it routes by."""
    model: ModelName = "filter"
    objective: Objective = "imitation"
    hidden_dim: int | None = None
    """Hidden units of the model; its own number if not given."""
    minutes: float = 10.0
    """Time to learn for, unless a run is told another."""
    against: tuple[str, ...] = ()
    """Methods that a gain is over: the first that has a cell of the same budget and compression."""
    peer: str | None = None
    """A library, as `compare` calls it, that stands in for all of the above."""

    def __post_init__(self) -> None:
        require(self.graph in GRAPH_KINDS, f"a graph of {', '.join(GRAPH_KINDS)}", self.graph)
        require(self.graph_space in get_args(GraphSpace), "a graph_space", self.graph_space)
        require(self.space in get_args(SpaceKind), "a space", self.space)
        require(self.model in MODELS, f"a model of {', '.join(MODELS)}", self.model)
        require(self.objective in OBJECTIVES, "an objective", self.objective)
        require(self.minutes > 0, "minutes above 0", self.minutes)


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of a table."""

    dataset: str
    """In a file one of the paper's datasets; in a plan the data that is at hand."""
    method: str
    budget: int
    """All distance computations (the paper's DCS)."""
    compression: int
    """D/d."""
    k: int
    """Vertices reranked."""
    rdcs: int
    """Scores that are routed by."""
    recall: float | None = None
    """The paper's recall@1; None where it prints none."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it is in a table: method, budget and compression."""
        return self.method, self.budget, self.compression


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    source: str
    """Where it is in the paper."""
    about: str
    methods: Mapping[str, Method]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PaperDataset:
    """A dataset of the paper, and what stands in for it."""

    name: str
    dim: int
    n_base: int
    prefixes: tuple[str, ...]


def read_experiment(name: str) -> Experiment:
    """Read one of EXPERIMENTS, check it and return it."""
    require(name in EXPERIMENTS, f"an experiment of {', '.join(EXPERIMENTS)}", name)
    content = _read_toml(name)
    methods = {key: _method(entry) for key, entry in content["methods"].items()}
    cells = tuple(_make(Cell, entry) for entry in content["cells"])
    for cell in cells:
        _check_cell(cell, methods)
    return Experiment(name, content["title"], content["source"], content["about"], methods, cells)


def paper_datasets() -> dict[str, PaperDataset]:
    """The paper's datasets by name."""
    return {
        name: PaperDataset(name, entry["dim"], entry["n_base"], tuple(entry["prefixes"]))
        for name, entry in _read_toml("datasets").items()
    }


def stands_for(name: str, n_base: int) -> PaperDataset | None:
    """The paper's dataset that data of this name and size is of the kind of; None if there is none.

    Recall falls with the number of vectors: data half or twice as large is no stand-in.
    """
    for dataset in paper_datasets().values():
        is_alike = dataset.n_base / 2 < n_base < dataset.n_base * 2
        if is_alike and name.lower().startswith(dataset.prefixes):
            return dataset
    return None


def cells_for(experiment: Experiment, name: str, n_base: int, dim: int) -> list[Cell]:
    """The cells of an experiment on data of this name and shape, in the file's order.

    Data of the dimension of the dataset that it stands in for has the paper's k. Other data has
    `rerank_for`'s, and all cells that leave something to route with. The paper's figure stands
    beside either, if the data stands in for a dataset at all.
    """
    kind = stands_for(name, n_base)
    theirs = {cell.place: cell for cell in experiment.cells if kind and cell.dataset == kind.name}
    places = dict.fromkeys(cell.place for cell in experiment.cells)
    cells = []
    for place in places:
        method, budget, compression = place
        paper = theirs.get(place)
        if paper is not None and kind is not None and kind.dim == dim:
            k = paper.k
        else:
            reranks = experiment.methods[method].space != "original"
            k = rerank_for(budget, compression, dim) if reranks else 0
        rdcs = _rdcs(budget, compression, k, dim)
        if rdcs >= 1:
            recall = None if paper is None else paper.recall
            cells.append(Cell(name, method, budget, compression, k, rdcs, recall))
    return cells


def rerank_for(budget: int, compression: int, dim: int) -> int:
    """How many vertices to rerank: the rule behind the paper's choices, but for two.

    Of what is left after the projection, a seventh at ×2 and a fifth from ×4 on, rounded down to a
    power of two; without compression a 32nd of the budget; always at least 8. DEEP100K at ×4 has
    twice as many in the paper.
    """
    left = budget - (dim // compression if compression > 1 else 0)
    share = {1: 32, 2: 7}.get(compression, 5)
    most = max(8, left // share)
    return 1 << (most.bit_length() - 1)


def _rdcs(budget: int, compression: int, k: int, dim: int) -> int:
    """What a budget leaves to route with; below 1 if nothing."""
    if dim < compression:
        return 0
    routing_dim = dim // compression
    n_projection = routing_dim if routing_dim != dim else 0
    try:
        return left_for_routing(budget, k, n_projection, routing_dim, dim)
    except ValueError:
        return 0


def _read_toml(name: str) -> dict[str, Any]:
    file = resources.files("l2route.reproduce") / "experiments" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _method(entry: Mapping[str, Any]) -> Method:
    method: Method = _make(Method, {**entry, "against": tuple(entry.get("against", ()))})
    return method


def _make(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(kind)]
    unknown = sorted(set(entry) - set(known))
    require(not unknown, f"keys of {', '.join(known)}", ", ".join(unknown))
    return kind(**entry)


def _check_cell(cell: Cell, methods: Mapping[str, Method]) -> None:
    """A cell must be of a known method, and its rdcs what the budget leaves."""
    require(cell.method in methods, f"a method of {', '.join(methods)}", cell.method)
    datasets = paper_datasets()
    require(cell.dataset in datasets, f"a dataset of {', '.join(datasets)}", cell.dataset)
    rdcs = _rdcs(cell.budget, cell.compression, cell.k, datasets[cell.dataset].dim)
    require(cell.rdcs == rdcs, f"rdcs {rdcs} of {cell}", cell.rdcs)
