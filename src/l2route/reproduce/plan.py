"""The paper's experiments as data: the cells of each table, and the same on other data."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from l2route.files.require import require
from l2route.graph.build import GRAPH_KINDS, GraphKind
from l2route.search.limits import left_for_routing
from l2route.search.space import rerank_within
from l2route.training.options import MODELS, OBJECTIVES, ModelName, Objective

EXPERIMENTS = ("table1", "routing", "ablation", "sota", "techniques")
"""Experiments that have a file, in the order in which `all` runs them."""
TOY_PICTURE = Path("toy") / "toy.png"
"""Path of the toy example's picture in a run's directory."""
SpaceKind = Literal["original", "pca", "learned"]
GraphSpace = Literal["original", "pca", "better"]
LogPart = Literal["edges", "entries"]
Keeping = Literal["always", "better"]


@dataclass(frozen=True, slots=True)
class Method:
    """How a row of a table is computed."""

    label: str
    """Name in tables."""
    graph: GraphKind = "nsw"
    degree: int = 16
    """Most neighbours of a vertex, before those that the log adds."""
    log: tuple[LogPart, ...] = ()
    """What the graph gets from the training queries; see `log_graph`."""
    log_kept: Keeping = "better"
    """Whether that is kept always, or if queries held out have a higher recall by it."""
    graph_space: GraphSpace = "original"
    """Vectors that the graph is built on if routing vectors are compressed: the original ones,
    their principal components, or the better of both for plain search on training queries."""
    space: SpaceKind = "original"
    """Kind of routing vectors."""
    model: ModelName = "filter"
    objective: Objective = "imitation"
    hidden_dim: int | None = None
    """Hidden units of the model; its default if not given."""
    budgets: tuple[int, ...] = ()
    """Budgets that one space is learned for, and that the log's parts are judged at; if there are
    none, a space is learned for each cell."""
    minutes: float = 10.0
    """Time limit of learning, unless the run sets another."""
    steps: int | None = None
    """Steps of learning, in place of a time limit, unless the run sets one."""
    against: tuple[str, ...] = ()
    """Rivals: a gain is over the first that has a cell of the same budget and compression."""
    peer: str | None = None
    """A library to search with in place of all of the above, by its name in compare.methods."""

    def __post_init__(self) -> None:
        require(self.graph in GRAPH_KINDS, f"a graph of {', '.join(GRAPH_KINDS)}", self.graph)
        require(self.graph_space in get_args(GraphSpace), "a graph_space", self.graph_space)
        require(self.space in get_args(SpaceKind), "a space", self.space)
        require(set(self.log) <= set(get_args(LogPart)), "a log of edges, entries", self.log)
        require(self.log_kept in get_args(Keeping), "log_kept", self.log_kept)
        require(self.degree >= 2, "a degree of at least 2", self.degree)
        require(bool(self.budgets) or not self.log, "budgets with a log", self.budgets)
        require(self.model in MODELS, f"a model of {', '.join(MODELS)}", self.model)
        require(self.objective in OBJECTIVES, "an objective", self.objective)
        require(self.minutes > 0, "minutes above 0", self.minutes)
        require(self.steps is None or self.steps >= 1, "steps of at least 1", self.steps)


@dataclass(frozen=True, slots=True)
class Cell:
    """One result in a table."""

    dataset: str
    """One of the paper's datasets in a file; the user's data in a plan."""
    method: str
    budget: int
    """Total of distance computations (the paper's DCS)."""
    compression: int
    """D/d."""
    k: int
    """Candidates reranked."""
    rdcs: int
    """Scores computed while routing (the paper's rDCS)."""
    recall: float | None = None
    """The paper's recall@1; None if it prints none."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Its place in a table: method, budget and compression."""
        return self.method, self.budget, self.compression


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    source: str
    """Table or figure in the paper."""
    about: str
    methods: Mapping[str, Method]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PaperDataset:
    """A dataset of the paper, and the names of data that stand in for it."""

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
    """The paper's dataset that data of this name and size can stand in for, or None.

    Recall falls with the number of vectors: data half or twice as large is no stand-in.
    """
    for dataset in paper_datasets().values():
        is_alike = dataset.n_base / 2 < n_base < dataset.n_base * 2
        if is_alike and name.lower().startswith(dataset.prefixes):
            return dataset
    return None


def cells_for(experiment: Experiment, name: str, n_base: int, dim: int) -> list[Cell]:
    """The cells of an experiment on data of this name and shape, in the file's order.

    Data with the dimension of the dataset that it stands in for uses the paper's k; other data
    uses `rerank_for`. Cells whose budget leaves nothing for routing are omitted. Data that stands
    in for a dataset has the paper's recall in its cells.
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
            k = _rerank_of(experiment.methods[method], budget, compression, dim)
        rdcs = _rdcs(budget, compression, k, dim)
        if rdcs >= 1:
            recall = None if paper is None else paper.recall
            cells.append(Cell(name, method, budget, compression, k, rdcs, recall))
    return cells


def _rerank_of(method: Method, budget: int, compression: int, dim: int) -> int:
    """Number of candidates that a method reranks.

    With a space for all budgets, and no compression, it is as searches do by default.
    """
    if method.space == "original":
        return 0
    is_default = bool(method.budgets) and compression == 1
    return rerank_within(budget, 1) if is_default else rerank_for(budget, compression, dim)


def rerank_for(budget: int, compression: int, dim: int) -> int:
    """Number of candidates to rerank: the rule behind the paper's choices, with two exceptions.

    Of the budget left after the projection, 1/7 at ×2 and 1/5 from ×4 on, rounded down to a power
    of two; without compression 1/32 of the budget; always at least 8. In the paper DEEP100K at ×4
    has twice as many.
    """
    left = budget - (dim // compression if compression > 1 else 0)
    share = {1: 32, 2: 7}.get(compression, 5)
    most = max(8, left // share)
    return 1 << (most.bit_length() - 1)


def _rdcs(budget: int, compression: int, k: int, dim: int) -> int:
    """Scores that a budget leaves for routing; below 1 if none."""
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
    listed = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    method: Method = _make(Method, {**entry, **listed})
    return method


def _make(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(kind)]
    unknown = sorted(set(entry) - set(known))
    require(not unknown, f"keys of {', '.join(known)}", ", ".join(unknown))
    return kind(**entry)


def _check_cell(cell: Cell, methods: Mapping[str, Method]) -> None:
    """Refuse an unknown method or dataset, or an rdcs that is not what the budget leaves."""
    require(cell.method in methods, f"a method of {', '.join(methods)}", cell.method)
    datasets = paper_datasets()
    require(cell.dataset in datasets, f"a dataset of {', '.join(datasets)}", cell.dataset)
    rdcs = _rdcs(cell.budget, cell.compression, cell.k, datasets[cell.dataset].dim)
    require(cell.rdcs == rdcs, f"rdcs {rdcs} of {cell}", cell.rdcs)
