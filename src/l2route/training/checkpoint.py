"""States of a run on disk: whole or not at all, and only for the run that they were made in."""

import os
from pathlib import Path
from typing import Any

import torch

VERSION = 2


def write_checkpoint(
    path: Path, state: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    """Write beside and rename, so that a crash leaves the state before.

    Args:
        path: the file.
        state: tensors and numbers.
        options: how the run learns.
        problem: what it learns, in a word.
    """
    temporary = path.with_name(f"{path.name}.partial")
    with temporary.open("wb") as stream:
        content = {"version": VERSION, "options": options, "problem": problem, "state": state}
        torch.save(content, stream)
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def read_checkpoint(path: Path, options: dict[str, Any], problem: str) -> dict[str, Any]:
    """Read a state; one of other options or of another problem is refused."""
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        version, made_with, state = content["version"], content["options"], content["state"]
    except Exception as error:  # torch raises many kinds on damaged files
        raise ValueError(f"{path}: expected a checkpoint, got {error}") from error
    if version != VERSION:
        raise ValueError(f"{path}: expected checkpoint version {VERSION}, got {version!r}")
    different = sorted(name for name in options if made_with.get(name) != options[name])
    if different:
        raise ValueError(f"{path}: expected a run with the same options, got other {different}")
    if content.get("problem") != problem:
        raise ValueError(f"{path}: expected the same graph, vectors and queries, got other")
    checked: dict[str, Any] = state
    return checked
