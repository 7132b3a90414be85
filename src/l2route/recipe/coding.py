"""The choice of codes: the element type and dimension of routing vectors that serve fastest."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from l2route.index import RoutingIndex
from l2route.recipe.measuring import Judge, Reached, Refused, measure
from l2route.recipe.steps import Recipe
from l2route.recipe.timing import compare
from l2route.search.base import BaseVectors
from l2route.search.codes import CODE_BITS, COMPRESSIONS, Compression, check_half
from l2route.search.layout import padded_dim
from l2route.search.machine import Machine
from l2route.search.query_aware import query_aware_space
from l2route.state.timing import LEAST_SPEEDUP

LOST_TO_ROUNDING = 0.005
"""Recall, by distances between the original vectors, that rounding to float16 may lose."""
LEAST_GAIN = 1.02
"""Speed, as a multiple of that of longer codes, at which shorter ones are taken."""
AWARE_STEP = 256
"""Query-aware dimensions are a multiple of this, so that codes of two bits fill cache lines."""
Half = Literal["float16"]


@dataclass(frozen=True, slots=True)
class Coding:
    """Element types of routing and original vectors, and the dimension of the former."""

    routing: Compression
    vectors: Half | None = "float16"
    dim: int | None = None
    """Dimension of a query-aware projection; None to keep the routing vectors that there are."""

    def __str__(self) -> str:
        projected = "" if self.dim is None else f" of {self.dim} query-aware dimensions"
        types = f"{self.routing} routing vectors{projected}"
        return f"{types} and {self.vectors or 'float32'} original vectors"

    def row_bytes(self, dim: int) -> int:
        """Bytes of a routing vector, where those that there are have `dim` dimensions."""
        bits = CODE_BITS[self.routing]
        return padded_dim(self.dim or dim, np.uint8, bits) * bits // 8


def shorter_codings(dim: int, original_dim: int, *, may_project: bool) -> list[Coding]:
    """Codings with fewer and fewer bytes than a byte per dimension, the longest first.

    Args:
        dim: dimension of the routing vectors that there are.
        original_dim: dimension of the vectors.
        may_project: whether there are queries to fit a projection to, and no learned space.
    """
    fewer = -(-2 * original_dim // (3 * AWARE_STEP)) * AWARE_STEP
    projected = [fewer] if may_project and fewer < original_dim else []
    codings = [Coding("int4"), *(Coding("int4", dim=each) for each in projected)]
    codings += [Coding("int2"), *(Coding("int2", dim=each) for each in projected)]
    shorter, least = list[Coding](), Coding("int8").row_bytes(dim)
    for coding in codings:
        if coding.row_bytes(dim) < least:
            shorter.append(coding)
            least = coding.row_bytes(dim)
    return shorter


def coded(index: RoutingIndex, coding: Coding, queries: NDArray[np.float32] | None) -> RoutingIndex:
    """A copy of an index with other routing and original vectors.

    Args:
        index: an index of float32; its last space is compressed.
        coding: what to make.
        queries: queries to fit a projection to, if the coding has one.
    """
    spaces = list(index.spaces[1:])
    if coding.dim is not None:
        assert queries is not None
        spaces.append(query_aware_space(index.base, queries, coding.dim))
    labels, validation = index.labels, index.validation
    copy = RoutingIndex(index.base, index.graph, spaces, labels, validation)
    copy.compress(coding.routing, vectors=coding.vectors)
    return copy


class Coder:
    """Tries codings on an index with validation queries, and chooses one.

    Args:
        recipe: recall, answers per query and element type.
        measured: the index to measure, of float32.
        served: vectors of the index to serve, of which those measured may be a part.
        queries: queries of the log to fit projections to; None if there are none.
    """

    def __init__(
        self,
        recipe: Recipe,
        measured: RoutingIndex,
        served: BaseVectors,
        queries: NDArray[np.float32] | None,
    ) -> None:
        self.recipe, self.measured, self.served, self.queries = recipe, measured, served, queries
        self.notes: list[str] = []
        assert measured.validation is not None
        self.judge: Judge = measured.validation.judge_each(measured.base, recipe.k)

    def choose(self, before: Reached | Refused) -> tuple[Coding, Reached] | None:
        """The coding to serve with, and what it costs; None if float32 is better than all.

        Args:
            before: what was measured of float32.
        """
        accepted = self._smallest_accepted(before)
        if accepted is None:
            self.notes.append("vectors stay float32")
            return None
        coding, trial, outcome = accepted
        if self.recipe.routing == "auto" and coding.routing == "int8":
            coding, outcome = self._shorter(coding, trial, outcome)
        self.notes.append(f"{coding}: kept")
        return coding, outcome

    def _smallest_accepted(
        self, before: Reached | Refused
    ) -> tuple[Coding, RoutingIndex, Reached] | None:
        """The first coding, from the element type of the recipe up, that is accepted.

        The choice by time begins with a byte per dimension.
        """
        first = next((each for each in COMPRESSIONS if each == self.recipe.routing), "int8")
        for routing in COMPRESSIONS[COMPRESSIONS.index(first) :]:
            for coding in (Coding(routing), Coding(routing, None)):
                trial, outcome = self._try(coding)
                if trial is not None:
                    outcome = self._judged(trial, outcome, before)
                if trial is not None and isinstance(outcome, Reached):
                    return coding, trial, outcome
                assert isinstance(outcome, Refused)
                self.notes.append(f"{coding}: {outcome.reason}")
        return None

    def _try(self, coding: Coding) -> tuple[RoutingIndex | None, Reached | Refused]:
        try:
            if "float16" in (coding.routing, coding.vectors):
                check_half(self.served.rows)
            trial = coded(self.measured, coding, self.queries)
        except ValueError as error:  # values beyond half floats, dimensions beyond codes
            return None, Refused(f"not possible: {error}")
        outcome = measure(trial, self.recipe, self.judge)
        if isinstance(outcome, Reached):
            lost = self.recipe.recall - outcome.cost.recall
            if lost > LOST_TO_ROUNDING:
                return trial, Refused(f"rounding leaves a recall of {outcome.cost.recall:.4f}")
        return trial, outcome

    def _judged(
        self, trial: RoutingIndex, outcome: Reached | Refused, before: Reached | Refused
    ) -> Reached | Refused:
        """Refuse codes that are no better than float32: by time, or by bytes read if asked for."""
        if isinstance(outcome, Refused) or isinstance(before, Refused):
            return outcome
        if self.recipe.routing == "auto":
            speedup = compare(self.measured, trial, self.recipe).speedup
            if speedup is not None and speedup < LEAST_SPEEDUP:
                return Refused(f"{speedup:.2f} times as fast as float32")
        elif outcome.cost.bytes_read >= before.cost.bytes_read:
            return Refused(f"queries would read {outcome.cost.bytes_read:,.0f} bytes, no fewer")
        return outcome

    def _shorter(
        self, best: Coding, fastest: RoutingIndex, outcome: Reached
    ) -> tuple[Coding, Reached]:
        """Codes of fewer bytes, where they are faster: by prediction first, then by measured time.

        A coding is tried if it would be faster at the number of vertices that the best one scores,
        and taken if validation queries are, at the number that it needs itself.
        """
        machine, space = Machine.measured(), self.measured.spaces[-1]
        may_project = self.queries is not None and len(self.measured.spaces) == 1
        n = len(self.measured.base.rows)
        for each in shorter_codings(space.dim, self.measured.dim, may_project=may_project):
            coding = Coding(each.routing, best.vectors, each.dim)
            rows = [machine.read_ns(c.row_bytes(space.dim), n) for c in (best, coding)]
            saved = outcome.cost.n_scored * (rows[0] - rows[1]) / 1000
            if saved < (LEAST_GAIN - 1) * outcome.cost.microseconds:
                self.notes.append(f"{coding}: would save {saved:.1f} µs of a query at the most")
                continue
            trial, tried = self._try(coding)
            if trial is None or isinstance(tried, Refused):
                assert isinstance(tried, Refused)
                self.notes.append(f"{coding}: {tried.reason}")
                continue
            speedup = compare(fastest, trial, self.recipe).speedup
            if speedup is None or speedup < LEAST_GAIN:
                self.notes.append(f"{coding}: {speedup or 0:.2f} times as fast as {best.routing}")
                continue
            self.notes.append(f"{best}: reaches the recall")
            best, fastest, outcome = coding, trial, tried
        return best, outcome
