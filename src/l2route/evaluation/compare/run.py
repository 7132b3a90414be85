"""Recall against queries per second of several methods, measured side by side in one run."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.methods import Entry, select
from l2route.evaluation.compare.protocol import Method
from l2route.evaluation.context import context
from l2route.evaluation.judge import Judge
from l2route.files.atomic import replace_text
from l2route.search.calibrate import OutOfReachError

TARGETS = (0.90, 0.95, 0.99)
"""Recalls at which speeds are compared."""
HIGHEST = 0.997
"""No larger knob is tried after a recall above this."""
SLOWEST = 100.0
"""No larger knob is tried after fewer queries per second than this."""


@dataclass(slots=True)
class Point:
    """Measurements of a method at one value of its knob."""

    knob: int
    recall: float
    """Recall@10."""
    n_computed: float | None
    """Distance computations per query; None if the method does not count them."""
    seconds: list[float]
    """Time for all queries on one thread, one value per round."""


@dataclass(slots=True)
class Line:
    """Measurements of a method with one set of parameters."""

    method: str
    label: str
    """The parameters."""
    build_seconds: float
    """Learning included."""
    learn_seconds: float
    bytes_per_vector: float | None
    points: list[Point] = field(default_factory=list)


@dataclass(slots=True)
class Comparison:
    """Raw results on one dataset, from which tables and pictures are made."""

    data: str
    n_base: int
    dim: int
    n_queries: int
    seed: int
    lines: list[Line] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Reasons by the names of methods or points that could not be measured."""
    context: dict[str, Any] = field(default_factory=context)

    def write(self, path: Path) -> None:
        """Write it as JSON; a crash leaves the old file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Comparison":
        """Read what `write` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        lines = [
            Line(**{**line, "points": [Point(**point) for point in line["points"]]})
            for line in content.pop("lines")
        ]
        return cls(**content, lines=lines)

    def speed(self, line: Line, recall: float) -> float | None:
        """Queries per second of a line at a recall, interpolated on a log scale.

        None if all its points lie on one side of that recall.
        """
        measured = [point.recall for point in line.points]
        if not measured or not min(measured) <= recall <= max(measured):
            return None
        recalls, speeds = np.array(self.envelope([line])).T
        return float(np.exp(np.interp(recall, recalls, np.log(speeds))))

    def best(self, method: str, recall: float) -> tuple[float, Line] | None:
        """Speed and line of a method that is fastest at a recall; None if no line reaches it."""
        lines = [line for line in self.lines if line.method == method]
        speeds = [(self.speed(line, recall), line) for line in lines]
        known = [(speed, line) for speed, line in speeds if speed is not None]
        return max(known, key=lambda pair: pair[0]) if known else None

    def envelope(self, lines: Iterable[Line]) -> list[tuple[float, float]]:
        """Points (recall, speed) of these lines that no other point beats in both, ascending."""
        points = [
            (point.recall, self.n_queries / min(point.seconds))
            for line in lines
            for point in line.points
        ]
        kept: list[tuple[float, float]] = []
        for recall, speed in sorted(points, reverse=True):
            if not kept or speed > kept[-1][1]:
                kept.append((recall, speed))
        return kept[::-1]

    @property
    def methods(self) -> list[str]:
        """Names of the methods that were measured, in order."""
        return list(dict.fromkeys(line.method for line in self.lines))


def compare(
    data: Dataset,
    methods: Sequence[str] | None = None,
    *,
    minutes: float = 10.0,
    n_rounds: int = 3,
    seed: int = 0,
    out: Path | None = None,
    on_message: Callable[[str], None] | None = None,
) -> Comparison:
    """Measure methods in turns: every point of each method once per round.

    Args:
        data: base vectors, training and test queries.
        methods: names of methods to compare; all by default.
        minutes: time limit of learning, for each method that learns.
        n_rounds: times that every point is timed; the fastest counts.
        seed: seed of every random choice.
        out: file that raw results are written to after every step.
        on_message: called with a message after every step.
    """
    entries = select("compare", methods)
    if n_rounds < 1:
        raise ValueError(f"expected at least one round, got {n_rounds}")
    n_base, dim = data.base.shape
    result = Comparison(data.name, n_base, dim, len(data.query), seed)
    run = _Run(result, out, on_message or _ignore)
    made = list(run.build_all(entries, data, minutes, seed))
    stopwatch = _Stopwatch(data, run.skip)
    for turn in range(n_rounds):
        for line, method in made:
            if turn == 0:
                stopwatch.explore(line, method)
            else:
                stopwatch.repeat(line, method)
            run.keep()
        run.say(f"round {turn + 1} of {n_rounds} done")
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """A comparison in progress: the results so far, their file, and a function for messages."""

    result: Comparison
    out: Path | None
    say: Callable[[str], None]

    def build_all(
        self, entries: Sequence[Entry], data: Dataset, minutes: float, seed: int
    ) -> Iterator[tuple[Line, Method]]:
        """Build each method and yield it with its line; one that fails is skipped."""
        for entry in entries:
            name = f"{entry.method} ({entry.label})"
            try:
                line, method = _make(entry, data, minutes, seed)
            except Exception as error:  # libraries raise any type, and the others can still run
                self.skip(name, error)
                continue
            self.result.lines.append(line)
            self.say(f"{name}: built in {line.build_seconds:.0f} s")
            self.keep()
            yield line, method

    def skip(self, name: str, error: Exception) -> None:
        """Record a method or point that could not be measured, and why."""
        self.result.skipped[name] = str(error)
        self.say(f"{name}: skipped, {error}")

    def keep(self) -> None:
        """Write the results so far."""
        if self.out is not None:
            self.result.write(self.out)


def _make(entry: Entry, data: Dataset, minutes: float, seed: int) -> tuple[Line, Method]:
    method = entry.make(seed, minutes)
    begin = time.perf_counter()
    method.build(data)
    seconds = time.perf_counter() - begin
    n_bytes = method.n_bytes()
    size = None if n_bytes is None else n_bytes / len(data.base)
    return Line(entry.method, entry.label, seconds, method.learn_seconds, size), method


class _Stopwatch:
    """Times searches for all test queries, and measures their recall.

    Args:
        data: base vectors and test queries.
        skip: called with the name of a point that could not be measured, and the error.
    """

    def __init__(self, data: Dataset, skip: Callable[[str, Exception], None]) -> None:
        self.queries, self.judge, self.skip = data.query, Judge(data, N_ANSWERS), skip

    def explore(self, line: Line, method: Method) -> None:
        """Measure a method at each of its knobs, up to HIGHEST or down to SLOWEST."""
        for knob in method.knobs:
            try:
                method.set(knob)
                point = Point(knob, *self._quality(method), [self._time(method)])
            except OutOfReachError:
                return
            except Exception as error:  # such as hnswlib's, where a beam finds too few
                self.skip(f"{line.method} ({line.label}) at {knob}", error)
                continue
            line.points.append(point)
            speed = len(self.queries) / point.seconds[0]
            if point.recall > HIGHEST or speed < SLOWEST:
                return

    def repeat(self, line: Line, method: Method) -> None:
        """Time all points once more."""
        for point in line.points:
            method.set(point.knob)
            point.seconds.append(self._time(method))

    def _time(self, method: Method) -> float:
        method.search(self.queries[:100], N_ANSWERS)
        begin = time.perf_counter()
        method.search(self.queries, N_ANSWERS)
        return time.perf_counter() - begin

    def _quality(self, method: Method) -> tuple[float, float | None]:
        recall = self.judge.recall(method.search(self.queries, N_ANSWERS))
        counts = method.count(self.queries[:1000], N_ANSWERS)
        return recall, None if counts is None else float(counts.mean())


def _ignore(_: str) -> None:
    pass
