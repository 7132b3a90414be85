"""Checkpoints: written atomically; a run refuses those of other runs."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from l2route.files.atomic import open_regular, replacing
from l2route.files.hashing import DIGEST_BYTES, add_array
from l2route.models.protocol import name_of
from l2route.training.problem import Problem, Sizes

VERSION = 5


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that a checkpoint belongs to."""

    options: dict[str, Any]
    """Options of learning, with the budget and rerank that are trained for."""
    problem: str
    """Hash of graph, vectors and queries."""
    model: str
    """Qualified name of the model's class."""
    shapes: dict[str, list[int]]
    """Shape of each parameter of the model."""

    @classmethod
    def of(cls, options: dict[str, Any], problem: Problem, model: nn.Module) -> "Origin":
        """The run of a model with these options."""
        shapes = {name: list(each.shape) for name, each in model.named_parameters()}
        return cls(options, problem.digest(), name_of(model), shapes)


def write_checkpoint(path: Path, state: dict[str, Any], origin: Origin, sizes: Sizes) -> None:
    """Replace a checkpoint; a crash leaves the previous one.

    Args:
        path: the file.
        state: tensors and numbers.
        origin: the run that it belongs to.
        sizes: how much data the run uses.
    """
    content = {
        "version": VERSION,
        **asdict(origin),
        "sizes": asdict(sizes),
        "state": state,
    }
    with replacing(path) as temporary:
        torch.save(content | {"digest": _digest(content)}, temporary)


def read_sizes(path: Path) -> Sizes:
    """How much data the run of a checkpoint uses."""
    try:
        return Sizes(**_read(path)["sizes"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected the sizes of a run, got {error}") from error


def read_checkpoint(path: Path, origin: Origin) -> dict[str, Any]:
    """Read the state of a checkpoint; one of another run is refused."""
    content = _read(path)
    options, state = content.get("options"), content.get("state")
    if not isinstance(options, dict) or not isinstance(state, dict):
        found = ", ".join(sorted(map(str, content)))
        raise ValueError(f"{path}: expected a checkpoint with options and a state, got {found}")
    if (model := content.get("model")) != origin.model:
        raise ValueError(f"{path}: expected a checkpoint of {origin.model}, got one of {model}")
    different = sorted(name for name in origin.options if options.get(name) != origin.options[name])
    if different:
        raise ValueError(f"{path}: expected a run with the same options, got other {different}")
    if content.get("problem") != origin.problem:
        raise ValueError(f"{path}: expected the same graph, vectors and queries, got other")
    if (shapes := content.get("shapes")) != origin.shapes:
        expected = f"a checkpoint of {model} with parameters {origin.shapes}"
        raise ValueError(f"{path}: expected {expected}, got one with {shapes}")
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
