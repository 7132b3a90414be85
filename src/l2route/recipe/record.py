"""The report of a build as JSON: written whole, and read without trust."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from l2route.files.atomic import open_regular
from l2route.files.meta import META, read_header
from l2route.recipe.outcome import Cost

FORMAT, SCHEMA = "l2route-report", 1
"""What a record says of itself; the schema is raised when older versions would misread it."""
NOT_SAVED = "learned"
"""The field that is not saved: it holds the validation queries."""
LEAST_MICROSECONDS, MOST = 1e-3, 1e18
"""Bounds of times per query, and of numbers that are not whole."""
Record = TypeVar("Record")


def record_of(report: Any) -> dict[str, Any]:
    """A report as plain values, for a file or for the meta.json of an index.

    Args:
        report: a dataclass of plain values, dataclasses and tuples of them.
    """
    values = {name: each for name, each in asdict(report).items() if name != NOT_SAVED}
    text = json.dumps({"format": FORMAT, "schema": SCHEMA, **values}, default=_plain)
    record: dict[str, Any] = json.loads(text)
    return record


def _plain(value: np.generic) -> object:
    """A number of numpy, as options may be, as one of Python."""
    return value.item()


def read_record(path: Path) -> object:
    """What is kept of a build in an index directory, or in a file."""
    if not path.is_dir():
        return _read_json(path)
    record = read_header(path / META).meta.get("report")
    if record is None:
        got = "one without a report"
        raise ValueError(f"{path}: expected an index made by l2route.build, got {got}")
    return record


def _read_json(path: Path) -> object:
    with open_regular(path) as stream:
        text = stream.read()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None


def checked(record: object) -> dict[str, Any]:
    """Refuse what is no record, or one of a schema that is not known."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        got = record.get("format") if isinstance(record, dict) else record
        raise ValueError(f"expected format {FORMAT}, got {_short(got)}")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, got {_short(record.get('schema'))}")
    return record


def check_cost(cost: Cost | None) -> None:
    """Refuse figures that no search has."""
    if cost is None:
        return
    shares = (cost.recall, cost.worst_recall, cost.share_low)
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"expected recalls and shares from 0 to 1, got {shares}")
    if not cost.microseconds >= LEAST_MICROSECONDS:
        got = cost.microseconds
        raise ValueError(f"expected at least {LEAST_MICROSECONDS} microseconds, got {got}")


def dataclass_of(kind: type[Record], entry: object, where: str) -> Record:
    """A dataclass from its dict; unknown keys are ignored, missing ones have their default.

    Args:
        kind: the dataclass.
        entry: what should be its dict.
        where: what it is, for errors.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"expected {where} as an object, got {_short(entry)}")
    hints = get_type_hints(kind, localns={"Report": object})
    values = {}
    for field in fields(kind):  # type: ignore[arg-type] # every caller passes a dataclass
        if field.name in entry:
            at = f"{field.name} of {where}"
            values[field.name] = _value_of(hints[field.name], entry[field.name], at)
        elif field.default is MISSING:
            raise ValueError(f"expected {field.name} of {where}, got none")
    return kind(**values)


def _value_of(hint: Any, value: object, where: str) -> Any:
    """A value of the type that a field is declared with."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        (hint,) = (each for each in inner if each is not NoneType)
        return _value_of(hint, value, where)
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"expected {where} among {', '.join(inner)}, got {_short(value)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"expected {where} as a list, got {_short(value)}")
        return tuple(_value_of(inner[0], each, f"{where} [{i}]") for i, each in enumerate(value))
    known = PLAIN.get(hint)
    return dataclass_of(hint, value, where) if known is None else known(value, where)


def _whole(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value < 2**64:
        raise ValueError(f"expected {where} as a whole number of at least 0, got {_short(value)}")
    return value


def _number(value: object, where: str) -> float:
    is_number = type(value) in (int, float) and abs(value) <= MOST  # type: ignore[arg-type]
    if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError(f"expected {where} as a finite number, got {_short(value)}")
    return float(value)  # type: ignore[arg-type]


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"expected {where} as text, got {_short(value)}")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected {where} as true or false, got {_short(value)}")
    return value


def _anything(value: object, where: str) -> object:
    return value


PLAIN: Mapping[Any, Callable[[Any, str], Any]] = {
    int: _whole,
    float: _number,
    str: _text,
    bool: _flag,
    object: _anything,
}
"""How values of plain types are read."""


def _short(value: object, most: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}…"
