"""What learning may be told."""

import math
from dataclasses import dataclass
from operator import index as index_of
from typing import Literal, get_args

from l2route.files.require import require

Objective = Literal["imitation", "teacher", "topk"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
ModelName = Literal["filter", "gcn", "ffn"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)
COUNTS = (
    "budget",
    "rerank",
    "k",
    "dim",
    "steps",
    "seed",
    "batch_size",
    "n_validation",
    "hidden_dim",
    "n_threads",
)
"""Options that are whole numbers, of whatever type of integer."""


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """How to learn."""

    budget: int = 256
    """Total distance computations per query to learn for, rerank and projection included."""
    rerank: int = 8
    """Of the budget, true distances at the end."""
    k: int = 1
    """Nearest neighbours of a query that are to end among those reranked."""
    recall: float | None = None
    """Recall@k to learn for. If given, budget and rerank are those that reach it without learning,
    and as much is kept of what was learned as reaches it at the least cost."""
    dim: int | None = None
    """Routing dimension; the original one if not given."""
    model: ModelName = "filter"
    """filter (linear in graph-propagated features), gcn (the paper's network) or ffn."""
    objective: Objective = "imitation"
    """imitation (equation 4), teacher (equation 3) or topk (its last term only)."""
    minutes: float = 5.0
    """Wall-clock time at the most, with all that comes before and after the steps; not used if
    steps are given."""
    epochs: float = 20.0
    """Passes over the training queries at the most, though never less than 2,000 steps: more of
    them gain nothing. Not used if steps are given."""
    steps: int | None = None
    """Number of steps; makes a run reproducible to the last bit."""
    seed: int = 0
    """Seed of every random choice."""
    batch_size: int | None = None
    """Walks per step; if not given 500 for the filter, and 4,000 for models over the whole graph,
    whose steps take seconds whatever the walks do."""
    temperature: float = 0.3
    """Of the noise that walks are sampled with."""
    topk_weight: float = 1 / 64
    """Weight of log P(v* in TopK) beside the sum over steps, per score that a walk may compute: the
    sum grows with their number. With d < D, where ranking is harder, D/d times that."""
    topk_sharpness: float = 4.0
    """Inverse temperature of that probability, in units of the steps' one."""
    learning_rate: float = 1e-3
    """Peak of the one-cycle schedule."""
    sharpness: float | None = None
    """Inverse temperature α of the scores; calibrated from the data if not given."""
    learns_from_base: bool | None = None
    """Whether base vectors are queries too, each hidden from its own walk; by default where the
    queries look like them."""
    visits_per_weight: float = 60.0
    """Visits in an epoch that a vertex needs, for each weight, to have a shift of its own in the
    filter; infinite for none."""
    n_validation: int = 5000
    """Queries cut from the training queries at the most: a tenth of the distinct ones, or up to 400
    of a short log, as far as a third of it goes."""
    count_repeats: bool = False
    """Whether a query that was asked n times is learned from n times; it validates once at most."""
    near_duplicate: float = 0.05
    """Distance, as a share of that to a validation query's second nearest vector, within which no
    other query is learned from: it would have the same answers."""
    memory_gb: float | None = None
    """Memory for hops from vertices to targets, in 10⁹ bytes; if not given 6.4, or half of what is
    free if that is less. A run is repeated to the last bit only with as much of it."""
    hidden_dim: int | None = None
    """Hidden units: of gcn's and ffn's feed-forward network, 1024 if not given, or of a layer in
    the filter, which has none if not given. A filter that has one has no hubs, and its steps
    go over the whole graph, as those of the networks do."""
    n_threads: int = 0
    """Threads for walks; 0 for all cores."""

    def __post_init__(self) -> None:
        for name in COUNTS:
            if (count := getattr(self, name)) is not None:
                object.__setattr__(self, name, index_of(count))
        require(self.model in MODELS, f"model {', '.join(MODELS)}", self.model)
        require(self.objective in OBJECTIVES, f"objective {', '.join(OBJECTIVES)}", self.objective)
        require(self.budget >= 1, "budget of at least 1", self.budget)
        require(self.rerank >= 1, "rerank of at least 1", self.rerank)
        require(1 <= self.k <= self.rerank, f"k in [1, {self.rerank}], the rerank", self.k)
        require(self.recall is None or 0 < self.recall <= 1, "recall in (0, 1]", self.recall)
        require(self.dim is None or self.dim >= 1, "dim of at least 1", self.dim)
        require(self.minutes > 0, "minutes above 0", self.minutes)
        require(self.epochs > 0, "epochs above 0", self.epochs)
        require(self.steps is None or self.steps >= 1, "steps of at least 1", self.steps)
        require(
            self.batch_size is None or self.batch_size >= 1,
            "batch_size of at least 1",
            self.batch_size,
        )
        require(self.temperature >= 0, "temperature of at least 0", self.temperature)
        require(self.topk_sharpness > 0, "topk_sharpness above 0", self.topk_sharpness)
        require(self.visits_per_weight > 0, "visits_per_weight above 0", self.visits_per_weight)
        require(
            self.hidden_dim is None or self.hidden_dim >= 1,
            "hidden_dim of at least 1",
            self.hidden_dim,
        )
        require(self.learning_rate > 0, "learning_rate above 0", self.learning_rate)
        require(self.n_validation >= 1, "n_validation of at least 1", self.n_validation)
        require(
            0 <= self.near_duplicate < math.inf, "near_duplicate of at least 0", self.near_duplicate
        )
        require(
            self.memory_gb is None or 0 < self.memory_gb < math.inf,
            "memory_gb above 0",
            self.memory_gb,
        )
        require(self.n_threads >= 0, "n_threads of at least 0", self.n_threads)

    @property
    def time_limit(self) -> float | None:
        """Minutes that a run may take; None where steps are given."""
        return None if self.steps is not None else self.minutes
