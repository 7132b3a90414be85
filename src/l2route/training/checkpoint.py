"""States of a run on disk: whole or not at all, and only for the run that they were made in."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from l2route.files.atomic import open_regular, replacing
from l2route.files.hashing import DIGEST_BYTES, add_array
from l2route.training.problem import Sizes

VERSION = 3


def write_checkpoint(
    path: Path, state: dict[str, Any], options: dict[str, Any], problem: str, sizes: Sizes
) -> None:
    """Replace the state in a file; a crash leaves the one before.

    Args:
        path: the file.
        state: tensors and numbers.
        options: how the run learns.
        problem: digest of what it learns.
        sizes: how much it learns from.
    """
    content = {
        "version": VERSION,
        "options": options,
        "problem": problem,
        "sizes": asdict(sizes),
        "state": state,
    }
    with replacing(path) as temporary:
        torch.save(content | {"digest": _digest(content)}, temporary)


def read_sizes(path: Path) -> Sizes:
    """How much the run of a checkpoint learns from."""
    try:
        return Sizes(**_read(path)["sizes"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected the sizes of a run, got {error}") from error


def read_checkpoint(path: Path, options: dict[str, Any], problem: str) -> dict[str, Any]:
    """Read a state; one of other options or of another problem is refused."""
    content = _read(path)
    made_with, state = content.get("options"), content.get("state")
    if not isinstance(made_with, dict) or not isinstance(state, dict):
        raise ValueError(f"{path}: expected a checkpoint with options and a state, got neither")
    different = sorted(name for name in options if made_with.get(name) != options[name])
    if different:
        raise ValueError(f"{path}: expected a run with the same options, got other {different}")
    if content.get("problem") != problem:
        raise ValueError(f"{path}: expected the same graph, vectors and queries, got other")
    return state


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as stream:
            content = torch.load(stream, weights_only=True, map_location="cpu")
        version = content["version"]
    except Exception as error:  # torch raises many kinds on damaged files
        raise ValueError(f"{path}: expected a checkpoint, got {error}") from error
    if version != VERSION:
        raise ValueError(f"{path}: expected checkpoint version {VERSION}, got {version!r}")
    digest = content.pop("digest", None)
    if digest != _digest(content):
        raise ValueError(f"{path}: expected an intact checkpoint, got one with another digest")
    checked: dict[str, Any] = content
    return checked


def _digest(content: object) -> str:
    """Hash of nested dicts, lists, tensors and plain values."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _update(digest, content)
    return digest.hexdigest()


def _update(digest: "hashlib.blake2b", value: object) -> None:
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous().numpy()
        add_array(digest, array)
    elif isinstance(value, dict):
        digest.update(f"dict {len(value)}".encode())
        for key, each in value.items():
            _update(digest, key)
            _update(digest, each)
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}".encode())
        for each in value:
            _update(digest, each)
    else:
        digest.update(f"{type(value).__name__} {value!r} ".encode())
