"""The slow twin of inserting vertices in batches: sets in place of lists, all pairs scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FAN_OUT = 4
MASK = 2**64 - 1


@dataclass
class SlowGraph:
    """A graph as sets of neighbours, with the tree that makes every vertex reachable."""

    vectors: NDArray[np.float32]
    """All vectors, of whole numbers, so that sums are exact [capacity, dim]."""
    width: int
    n_candidates: int
    degree: int
    trimmed: int
    alpha: float
    trim_alpha: float
    longest: float | None = None
    """Squared length of the longest vector for inner products; None for l2."""
    lists: dict[int, set[int]] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)

    def squared(self, a: int, b: int) -> float:
        """Squared distance by which lists are pruned."""
        x, y = self.vectors[a].astype(float), self.vectors[b].astype(float)
        between = float(((x - y) ** 2).sum())
        if self.longest is None:
            return between
        missing = [np.sqrt(max(0.0, self.longest - float((v**2).sum()))) for v in (x, y)]
        return between + float(missing[0] - missing[1]) ** 2

    def score(self, a: int, b: int) -> float:
        """Score by which walks rank."""
        if self.longest is None:
            return self.squared(a, b)
        return -float(self.vectors[a].astype(float) @ self.vectors[b].astype(float))

    def sorted_from(self, vertex: int, ids: Iterable[int]) -> list[int]:
        """Ids from near to far, ties by id."""
        return sorted(set(ids) - {vertex}, key=lambda other: (self.squared(vertex, other), other))

    def chosen(
        self, vertex: int, ids: Iterable[int], kept: set[int], degree: int, alpha: float
    ) -> list[int]:
        """Those kept, then others from near to far that no chosen one covers."""
        ordered = self.sorted_from(vertex, ids)
        taken = [other for other in ordered if other in kept]
        for one in ordered:
            if one in kept or len(taken) >= degree:
                continue
            between = [self.squared(one, other) for other in taken]
            own = np.float32(self.squared(vertex, one))
            if not any(d == 0 or np.float32(alpha) * np.float32(d) < own for d in between):
                taken.append(one)
        return taken

    def equals(self, a: int, b: int) -> bool:
        """Whether two vectors are equal."""
        return bool((self.vectors[a] == self.vectors[b]).all())

    def children(self, vertex: int, are_copies: bool) -> list[int]:
        """Children in the tree, ascending."""
        own = [child for child, parent in self.parents.items() if parent == vertex]
        return sorted(child for child in own if (child in self.copies) == are_copies)

    def insert(self, slots: list[int]) -> None:
        """Place and publish a batch."""
        old = [v for v in self.lists if v not in self.copies]
        leaders = [s for i, s in enumerate(slots) if not any(self.equals(s, t) for t in slots[:i])]
        found = {s: self.find(s, [*old, *(t for t in leaders if t != s)]) for s in leaders}
        equal = {  # the first, if inner products missed that two were equal
            s: e for s in leaders for e in reversed(found[s]) if e in old and self.equals(s, e)
        }
        for slot in slots:
            self.attach(slot, leaders, found, equal)
        self.publish(slots)

    def find(self, slot: int, ids: list[int]) -> list[int]:
        """The nearest candidates by score, sorted by distance."""
        nearest = sorted(ids, key=lambda other: (self.score(slot, other), other))[
            : self.n_candidates
        ]
        return self.sorted_from(slot, nearest)

    def attach(
        self, slot: int, leaders: list[int], found: dict[int, list[int]], equal: dict[int, int]
    ) -> None:
        """Choose the list and the parent of a slot."""
        leader = next(one for one in leaders if self.equals(one, slot))
        if leader != slot or slot in equal:
            original = equal.get(leader, leader)
            self.copies.add(slot)
            most = {original: 1}
            fan_out = min(FAN_OUT, max(1, self.width - 1))
            parent = self.with_room(original, slot, True, most, fan_out)
            self.lists[slot] = {original}
        else:
            chosen = self.chosen(slot, found[slot], set(), self.degree, self.alpha)
            self.lists[slot] = {equal.get(other, other) for other in chosen}
            parent = self.parent_of(slot, [equal.get(other, other) for other in found[slot]])
        self.parents[slot] = parent

    def parent_of(self, slot: int, candidates: list[int]) -> int:
        """The nearest candidate in the tree with room for a child, or one below the first."""
        if not self.parents:
            return -1
        placed = [
            other for other in candidates if other in self.parents and other not in self.copies
        ]
        most = max(1, self.width // 2)
        for other in placed:
            if len(self.children(other, False)) < most:
                return other
        return self.with_room(
            placed[0] if placed else next(iter(self.parents)), slot, False, {}, most
        )

    def with_room(
        self, vertex: int, slot: int, for_copy: bool, most: dict[int, int], usual: int
    ) -> int:
        """Descend to a vertex with room by a way that the slot determines."""
        chance = slot * 0x9E3779B97F4A7C15 & MASK
        while True:
            children = self.children(vertex, for_copy)
            if len(children) < most.get(vertex, usual):
                return vertex
            chance ^= chance >> 29
            chance = chance * 0xBF58476D1CE4E5B9 & MASK
            vertex = children[(chance >> 32) % len(children)]

    def renew(self, vertices: list[int]) -> None:
        """Choose new neighbours for vertices, among those that walks from theirs find."""
        renewed = {}
        for vertex in vertices:
            found = self.find(vertex, sorted(self.beyond(vertex) - self.copies))
            kept = {other for other in self.lists[vertex] if self.parents[other] == vertex}
            ids = self.lists[vertex] | set(found)
            renewed[vertex] = set(self.chosen(vertex, ids, kept, self.degree, self.alpha))
        self.lists |= renewed
        self.publish(vertices)

    def beyond(self, vertex: int) -> set[int]:
        """Vertices that edges lead to from a vertex, without coming back to it."""
        found, left = set(self.lists[vertex]), list(self.lists[vertex])
        while left:
            new = self.lists[left.pop()] - found - {vertex}
            found |= new
            left += new
        return found

    def publish(self, slots: list[int]) -> None:
        """Add edges back to new slots; prune lists that overflow, without losing children."""
        added: dict[int, set[int]] = {}
        for slot in slots:
            sources = set() if slot in self.copies else set(self.lists[slot])
            for source in sources | ({self.parents[slot]} - {-1}):
                added.setdefault(source, set()).add(slot)
        for vertex, new in added.items():
            both = self.lists[vertex] | new
            if len(both) > self.width:
                kept = {other for other in both if self.parents[other] == vertex}
                both = set(self.chosen(vertex, both, kept, self.trimmed, self.trim_alpha))
            self.lists[vertex] = both
