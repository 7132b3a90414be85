"""Recall against queries per second, ours and others', measured side by side in one run."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.methods import VARIANTS, Method, Variant
from l2route.evaluation.context import context
from l2route.evaluation.judge import Judge
from l2route.files.atomic import replace_text
from l2route.search.calibrate import OutOfReachError

TARGETS = (0.90, 0.95, 0.99)
"""Recalls that methods are compared at."""
HIGHEST = 0.997
"""Recall beyond which no harder search is tried."""
SLOWEST = 100.0
"""Queries per second below which none is."""


@dataclass(slots=True)
class Point:
    """A method at one value of its knob."""

    knob: int
    recall: float
    """Recall@10."""
    n_computed: float | None
    """Distances per query, where the method counts them."""
    seconds: list[float]
    """Of all queries, one thread, once a round."""


@dataclass(slots=True)
class Line:
    """A variant of a method: what it took to make, and what it does."""

    method: str
    label: str
    build_seconds: float
    """Learning included."""
    learn_seconds: float
    bytes_per_vector: float | None
    points: list[Point] = field(default_factory=list)


@dataclass(slots=True)
class Comparison:
    """Raw results on one dataset; all that tables and pictures are made of."""

    data: str
    n_base: int
    dim: int
    n_queries: int
    seed: int
    lines: list[Line] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Variants that are not there, and why."""
    context: dict[str, Any] = field(default_factory=context)

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
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
        """Queries per second of a variant at a recall, between its points on a log scale.

        None where it was measured on one side of that recall only.
        """
        measured = [point.recall for point in line.points]
        if not measured or not min(measured) <= recall <= max(measured):
            return None
        recalls, speeds = np.array(self.envelope([line])).T
        return float(np.exp(np.interp(recall, recalls, np.log(speeds))))

    def best(self, method: str, recall: float) -> tuple[float, Line] | None:
        """A method's fastest variant at a recall, with its speed."""
        lines = [line for line in self.lines if line.method == method]
        speeds = [(self.speed(line, recall), line) for line in lines]
        known = [(speed, line) for speed, line in speeds if speed is not None]
        return max(known, key=lambda pair: pair[0]) if known else None

    def envelope(self, lines: Iterable[Line]) -> list[tuple[float, float]]:
        """Recalls and speeds that no other of these lines' points beats in both, ascending."""
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
        """Names of all methods that were measured, in order."""
        return list(dict.fromkeys(line.method for line in self.lines))


def check_methods(methods: Sequence[str] | None) -> None:
    """Refuse names of methods that VARIANTS do not have."""
    known = list(dict.fromkeys(variant.method for variant in VARIANTS))
    for name in methods or ():
        if name not in known:
            raise ValueError(f"expected a method of {', '.join(known)}, got {name!r}")


def compare(
    data: Dataset,
    methods: Sequence[str] | None = None,
    *,
    minutes: float = 10.0,
    n_rounds: int = 3,
    seed: int = 0,
    out: Path | None = None,
    told: Callable[[str], None] | None = None,
) -> Comparison:
    """Measure methods in turns: all of them once, then all of them again.

    Args:
        data: base vectors, training and test queries.
        methods: names, of VARIANTS; all by default.
        minutes: time that those that learn may learn for.
        n_rounds: times that every point is timed; the fastest counts.
        seed: of every random choice.
        out: file to keep raw results in as they come.
        told: told what is done.
    """
    check_methods(methods)
    if n_rounds < 1:
        raise ValueError(f"expected at least one round, got {n_rounds}")
    say = told or _ignore
    n_base, dim = data.base.shape
    result = Comparison(data.name, n_base, dim, len(data.query), seed)

    def skip(name: str, error: Exception) -> None:
        result.skipped[name] = str(error)
        say(f"{name}: skipped, {error}")

    stopwatch = _Stopwatch(data, skip)
    made: list[tuple[Line, Method]] = []
    for variant in VARIANTS:
        if methods is not None and variant.method not in methods:
            continue
        name = f"{variant.method} ({variant.label})"
        try:
            line, method = _make(variant, data, minutes, seed)
        except Exception as error:  # libraries raise what they like, and others can still run
            skip(name, error)
            continue
        result.lines.append(line)
        made.append((line, method))
        say(f"{name}: built in {line.build_seconds:.0f} s")
        _keep(result, out)
    for turn in range(n_rounds):
        for line, method in made:
            if turn == 0:
                stopwatch.explore(line, method)
            else:
                stopwatch.repeat(line, method)
            _keep(result, out)
        say(f"round {turn + 1} of {n_rounds} done")
    return result


def _make(variant: Variant, data: Dataset, minutes: float, seed: int) -> tuple[Line, Method]:
    method = variant.make(seed, minutes)
    begin = time.perf_counter()
    method.build(data)
    seconds = time.perf_counter() - begin
    n_bytes = method.n_bytes()
    size = None if n_bytes is None else n_bytes / len(data.base)
    learned = float(getattr(method, "learn_seconds", 0.0))
    return Line(variant.method, variant.label, seconds, learned, size), method


class _Stopwatch:
    """Times searches for all test queries, and has their answers judged.

    Args:
        data: the queries.
        skip: told of a point that a method cannot measure, and why.
    """

    def __init__(self, data: Dataset, skip: Callable[[str, Exception], None]) -> None:
        self.queries, self.judge, self.skip = data.query, Judge(data, N_ANSWERS), skip

    def explore(self, line: Line, method: Method) -> None:
        """Take a method's knobs one by one, until it is as good or as slow as matters."""
        for knob in method.knobs:
            try:
                method.set(knob)
                point = Point(knob, *self._quality(method), [self._time(method)])
            except OutOfReachError:
                return
            except Exception as error:  # hnswlib's, for one, where a beam finds too few
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


def _keep(result: Comparison, out: Path | None) -> None:
    if out is not None:
        result.write(out)


def _ignore(_: str) -> None:
    pass
