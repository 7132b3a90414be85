"""What a step of a build took and brought, and what became of it."""

from dataclasses import dataclass
from typing import Literal

Decision = Literal["kept", "not kept", "skipped"]
"""What became of a step: tried and kept, tried and not kept, or not tried."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a search at the target recall: means over the validation queries."""

    recall: float
    """Recall@k, by distances between the original vectors."""
    worst_recall: float
    """The same of the 5% of queries whose recall is lowest."""
    share_low: float
    """Share of queries whose recall@k is below 0.8."""
    n_scored: float
    """Routing vectors scored per query."""
    bytes_read: float
    """Bytes of vectors read per query, rerank included."""
    microseconds: float
    """Time of the processor per query, on one thread."""

    @property
    def speed(self) -> float:
        """Queries a second on one thread."""
        return 1e6 / self.microseconds


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a build, and the index after it."""

    name: str
    seconds: float
    bytes_per_vector: float
    """Memory of the whole index, vectors included."""
    cost: Cost | None
    """None if there were no queries to measure with, or if no setting reaches the recall."""
    note: str | None = None
    """The decision made in this step, and its reason."""
    decision: Decision = "kept"
    """Whether the index has what the step made; if not, its cost is that before the step."""


def times(ratio: float) -> str:
    """A multiple as ×1.25, a loss or a small gain as per cent."""
    percent = round(100 * (ratio - 1))
    if ratio >= 1.1:
        return f"×{ratio:.2f}" if ratio < 10 else f"×{ratio:,.0f}"
    return f"{percent:+d}%".replace("-", "−") if percent else "±0%"
