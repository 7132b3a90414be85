"""Moves of ids from shard to shard, as the shard that gets them records them until they are done.

The record is written before the vectors are, and goes when no other shard has the ids. Whoever
finds one that was left by a fault finishes the move: ids that have arrived are removed elsewhere,
the others stay where they are. Ids are removed elsewhere only while the record is there, so that a
late call harms no later move.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.folder import Folder

Ids = NDArray[np.int64]
MOVES = "moves.json"
"""Ids that have come into a shard, by move, in its folder; not there if all moves are done."""


class Move(NamedTuple):
    """Ids that a change moves into a shard."""

    target: int
    """The shard that gets them."""
    token: str
    """Of this change, and of no other."""
    ids: Ids
    """Ids that other shards have [n]."""


class Held(NamedTuple):
    """What a shard says about ids."""

    mask: NDArray[np.bool_]
    """Whether it has each of them [n]."""
    moves: list[Move]
    """Moves of them into the shard that are not done."""


def read_moves(folder: Folder, number: int) -> list[Move]:
    """The moves into a shard that are not done; its folder is not trusted."""
    if not folder.has(MOVES):
        return []
    try:
        content = json.loads(folder.read(MOVES))
        return [Move(number, str(t), np.array(ids, dtype=np.int64)) for t, ids in content.items()]
    except FileNotFoundError:  # all are done meanwhile
        return []
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{folder}/{MOVES}: expected ids of moves, got {error}") from None


def write_moves(folder: Folder, moves: list[Move]) -> None:
    """Replace the record of a shard; moves without ids are left out."""
    content = {move.token: move.ids.tolist() for move in moves if len(move.ids)}
    if content:
        folder.replace(MOVES, json.dumps(content).encode())
    else:
        folder.remove(MOVES)
