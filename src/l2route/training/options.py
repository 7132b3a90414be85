"""Options of learning. Each is described once, by the docstring under its field."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import index as index_of
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

if TYPE_CHECKING:  # the protocol needs torch, options do not
    from l2route.models.protocol import RoutingModel

from l2route.files.require import require
from l2route.search.limits import Limits
from l2route.search.space import rerank_within

Objective = Literal["imitation", "teacher", "topk"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
ModelName = Literal["filter", "gcn", "ffn"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)
Counts = int | Sequence[int]
"""A whole number, or several."""
DEFAULT_BUDGETS, DEFAULT_KS = (128, 256, 512), (1, 10)
"""Budgets and numbers of neighbours that one space is learned for by default."""
COUNTS = (
    "rerank",
    "dim",
    "steps",
    "seed",
    "batch_size",
    "n_validation",
    "hidden_dim",
    "n_threads",
)
"""Options that are whole numbers, of any integer type."""
SEVERAL = ("budget", "k")
"""Options that are whole numbers or several of them."""
LEAST = {
    "budget": 1,
    "rerank": 1,
    "k": 1,
    "dim": 1,
    "steps": 1,
    "batch_size": 1,
    "hidden_dim": 1,
    "n_validation": 1,
    "n_threads": 0,
    "temperature": 0,
    "near_duplicate": 0,
}
"""Smallest value of options that have one."""
ABOVE_ZERO = (
    "minutes",
    "epochs",
    "topk_sharpness",
    "sharpness",
    "visits_per_weight",
    "learning_rate",
    "memory_gb",
)
FINITE = ("near_duplicate", "memory_gb")


@dataclass(frozen=True, slots=True)
class Goal:
    """Recall@k within a budget, which walks learn for and spaces are compared by."""

    budget: int
    """Distance computations per query in total, rerank and projection included."""
    rerank: int
    """Of the budget, true distances at the end."""
    k: int = 1
    """Nearest neighbours to find."""

    @property
    def limits(self) -> Limits:
        """Limits of searches that spend the budget."""
        return Limits(self.budget, rerank=self.rerank)


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """How to learn.

    The first sentence under a field is also the help text of the command line's option.
    """

    budget: Counts | None = None
    """Training target given as budgets: distance computations per query, 128,256,512 by default.
    Rerank and projection are included. One space serves all of several budgets; walks for each of
    them compute as many distances in total. If queries are projected, the default ones are at least
    twice the cost of rerank and projection."""
    rerank: int | None = None
    """Distance computations that rerank the best candidates, by default a tenth of the budget, or a
    20th for k = 1. At least 8 and k by default. Searches of the learned space do the same."""
    k: Counts | None = None
    """Number of nearest neighbours to find per query, by default 1,10, or 1 if one budget or a
    recall is given. If several, one space serves all of them. At most `rerank`: all k have to be
    among the reranked candidates."""
    recall: float | None = None
    """Training target given as recall@k, in place of budget and rerank. The budget is then what
    this recall costs without learning, the rerank at least 2k, and the learned space is chosen for
    the least time at this recall, as a typical machine takes it."""
    dim: int | None = None
    """Routing dimension; by default that of the vectors. If smaller, queries are projected."""
    model: ModelName = "filter"
    """Model: filter (linear in graph-propagated features), gcn (the paper's network) or ffn."""
    objective: Objective = "imitation"
    """Objective: imitation (equation 4), teacher (equation 3) or topk (its last term only)."""
    minutes: float = 5.0
    """Time limit in minutes, set-up and final measurements included. If there is no time to find
    the true neighbours of all training queries, some are left out. Ignored if steps are given."""
    epochs: float = 20.0
    """Largest number of passes over the training queries per budget, but at least 2,000 steps. More
    passes gain nothing. Ignored if steps are given."""
    steps: int | None = None
    """Number of training steps, in place of a time limit. Makes a run reproducible bit for bit."""
    seed: int = 0
    """Seed of every random choice."""
    batch_size: int | None = None
    """Walks per step. By default 500 for models with constant vertices, such as the filter, and
    4,000 for the others, whose steps take seconds however few walks they have."""
    temperature: float = 0.3
    """Temperature of the noise that walks are sampled with."""
    topk_weight: float = 1 / 64
    """Weight of log P(v* in TopK), per score that a walk may compute. The other term is a sum over
    steps, which grows with that number. With d < D, where ranking is harder, D/d times as much."""
    topk_sharpness: float = 4.0
    """Inverse temperature of P(v* in TopK), relative to that of the steps."""
    learning_rate: float = 1e-3
    """Peak learning rate of the one-cycle schedule."""
    sharpness: float | None = None
    """Inverse temperature α of the scores; by default calibrated on the data."""
    learns_from_base: bool | None = None
    """Whether base vectors are training queries too, each hidden from its own walk. By default if
    the queries are distributed like them."""
    visits_per_weight: float = 60.0
    """Smallest number of visits, per epoch and weight, that make a vertex a hub: the filter learns
    a shift of its vector. Infinite for no hubs."""
    n_validation: int = 5000
    """Largest number of queries held out for validation. Held out are a tenth of the distinct
    queries, or up to 400 of a short log, but at most a third of it."""
    count_repeats: bool = False
    """Train on a query as often as the log repeats it, instead of once. Validation queries are
    distinct in any case."""
    near_duplicate: float = 0.05
    """Distance around a validation query within which no other query is trained on. As a fraction
    of the distance to the validation query's second nearest vector: such queries have the same
    answers."""
    memory_gb: float | None = None
    """Memory for hops from vertices to targets in 10⁹ bytes; by default 6.4, or half of the
    free memory. A run is reproducible bit for bit only with the same amount."""
    hidden_dim: int | None = None
    """Hidden units of gcn and ffn, 1024 by default, or of a hidden layer in the filter, by default
    none. A filter with a hidden layer has no hubs, and its steps cost as much as a network's."""
    n_threads: int = 0
    """Number of threads; 0 for all cores."""

    def __post_init__(self) -> None:
        for name in COUNTS:
            if (count := getattr(self, name)) is not None:
                object.__setattr__(self, name, index_of(count))
        for name in SEVERAL:
            if (counts := getattr(self, name)) is not None:
                object.__setattr__(self, name, _counts(name, counts))
        self._check_ranges()
        require(self.model in MODELS, f"model {', '.join(MODELS)}", self.model)
        require(self.objective in OBJECTIVES, f"objective {', '.join(OBJECTIVES)}", self.objective)
        require(self.recall is None or 0 < self.recall <= 1, "recall in (0, 1]", self.recall)
        if self.recall is not None and (self.budget is not None or self.rerank is not None):
            raise ValueError("expected a recall, or else budget and rerank, got both")
        self._check_goals()

    def _check_goals(self) -> None:
        if self.recall is not None:
            require(len(self.ks) == 1, "one k with a recall", self.k)
        for goal in self.goals:
            require(goal.k <= goal.rerank, f"k in [1, {goal.rerank}], the rerank", goal.k)
            if self.recall is None:
                is_below = goal.rerank < goal.budget
                require(is_below, f"rerank below the budget, {goal.budget}", goal.rerank)

    def _check_ranges(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value for name, value in given.items() if value is not None}
        for name, least in LEAST.items():
            if name in given:
                smallest = min(given[name]) if isinstance(given[name], tuple) else given[name]
                require(smallest >= least, f"{name} of at least {least}", smallest)
        for name in ABOVE_ZERO:
            if name in given:
                require(given[name] > 0, f"{name} above 0", given[name])
        for name in FINITE:
            if name in given:
                require(given[name] < math.inf, f"a finite {name}", given[name])

    @property
    def time_limit(self) -> float | None:
        """Minutes that a run may take; None if steps are given."""
        return None if self.steps is not None else self.minutes

    @property
    def budgets(self) -> tuple[int, ...]:
        """Budgets, or their defaults, ascending."""
        return DEFAULT_BUDGETS if self.budget is None else _as_tuple(self.budget)

    @property
    def ks(self) -> tuple[int, ...]:
        """Numbers of neighbours, or their defaults, ascending."""
        if self.k is not None:
            return _as_tuple(self.k)
        return DEFAULT_KS if self.recall is None and len(self.budgets) > 1 else DEFAULT_KS[:1]

    @property
    def goals(self) -> tuple[Goal, ...]:
        """Every k within every budget; for a recall the budgets are found later."""
        return tuple(
            Goal(budget, rerank_within(budget, k) if self.rerank is None else self.rerank, k)
            for budget in self.budgets
            for k in self.ks
        )

    def fitted(self, dim: int, n_vectors: int) -> "LearnOptions":
        """The options with budgets and k filled in, for vectors of this dimension and number."""
        ks = self.ks if self.k is not None else tuple(k for k in self.ks if k <= n_vectors)
        if self.recall is not None or self.budget is not None:
            return replace(self, k=ks)
        n_projection = 0 if self.dim is None or self.dim == dim else self.dim
        rerank = max(goal.rerank for goal in self.goals if goal.budget == self.budgets[0])
        least = 2 * (rerank + n_projection)
        return replace(self, k=ks, budget=tuple(max(each, least) for each in self.budgets))


def _counts(name: str, given: object) -> int | tuple[int, ...]:
    """A whole number, or several distinct ones in ascending order."""
    if not isinstance(given, Iterable):
        return index_of(given)  # type: ignore[arg-type] # it says what it does not take
    counts = tuple(sorted({index_of(each) for each in given}))
    require(len(counts) > 0, f"{name} of at least one number", counts)
    return counts[0] if len(counts) == 1 else counts


def _as_tuple(counts: Counts) -> tuple[int, ...]:
    return (counts,) if isinstance(counts, int) else tuple(counts)


class LearnKeywords(TypedDict, total=False):
    """Fields of `LearnOptions` as keywords of `RoutingIndex.learn`; `model` may be custom."""

    budget: Counts | None
    rerank: int | None
    k: Counts | None
    recall: float | None
    dim: int | None
    model: "ModelName | RoutingModel"
    objective: Objective
    minutes: float
    epochs: float
    steps: int | None
    seed: int
    batch_size: int | None
    temperature: float
    topk_weight: float
    topk_sharpness: float
    learning_rate: float
    sharpness: float | None
    learns_from_base: bool | None
    visits_per_weight: float
    n_validation: int
    count_repeats: bool
    near_duplicate: float
    memory_gb: float | None
    hidden_dim: int | None
    n_threads: int


def with_keywords(
    options: LearnOptions | None, keywords: Mapping[str, Any]
) -> tuple[LearnOptions, "RoutingModel | None"]:
    """Options with some fields changed, and the custom model if `model` is one.

    Args:
        options: options to change; None for the defaults.
        keywords: fields to change.
    """
    names = [each.name for each in fields(LearnOptions)]
    unknown = sorted(keywords.keys() - set(names))
    if unknown:
        raise TypeError(f"expected options of learning ({', '.join(names)}), got {unknown[0]!r}")
    changes, model = dict(keywords), keywords.get("model")
    if model is None or isinstance(model, str):
        return replace(options or LearnOptions(), **changes), None
    del changes["model"]
    return replace(options or LearnOptions(), **changes), model
