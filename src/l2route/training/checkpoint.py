"""States of a run on disk: whole or not at all, and only for the options they were made with."""

import os
from pathlib import Path
from typing import Any

import torch

VERSION = 1


def write_checkpoint(path: Path, state: dict[str, Any], options: dict[str, Any]) -> None:
    """Write beside and rename, so that a crash leaves the state before."""
    temporary = path.with_name(f"{path.name}.partial")
    with temporary.open("wb") as stream:
        torch.save({"version": VERSION, "options": options, "state": state}, stream)
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def read_checkpoint(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Read a state; options that are not those of the run are refused."""
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
    checked: dict[str, Any] = state
    return checked
