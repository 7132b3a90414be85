"""Options of the server."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

API_KEY = "L2ROUTE_API_KEY"
"""Environment variable with the key that changes need."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How an index is served."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback, changes need a key in L2ROUTE_API_KEY."""
    port: int = 8000
    """Port to listen on; 0 for any that is free."""
    threads: int = 0
    """Threads that search; 0 for all cores."""
    recall: float | None = None
    """Recall of searches that ask for no recall and no limits; by default a budget of 256."""
    timeout: float = 30.0
    """Seconds that a request may take to arrive, to wait, and to be read by the client."""
    max_queue: int = 1000
    """Requests that may wait; further ones get 429."""
    max_batch: int = 256
    """Queries of different requests that are searched as one batch; 1 for each request alone."""
    max_connections: int = 1000
    """Open connections; beyond them the address with most of them loses one that waits for it."""
    max_k: int = 1000
    """Largest k of a search."""
    max_rows: int = 10_000
    """Most vectors of a request."""
    max_ids: int = 100_000
    """Most ids in a filter or in a request to delete."""
    max_budget: int = 100_000
    """Most distance computations of a query, whatever ends it, and largest ef and rerank."""
    max_work: int = 100_000_000
    """Most rows times budget of a search: distance computations of a request."""
    max_body_mb: float = 64.0
    """Largest body of a request, in millions of bytes."""
    save_seconds: float = 10.0
    """Seconds between saves of an index that changes; its journal has each change before."""
    reload: bool = True
    """Whether to load the index again when another process has saved it."""
    reload_seconds: float = 2.0
    """Seconds between looks at the saved index."""
    log_queries: Path | None = None
    """File that queries are appended to, for `l2route learn INDEX --queries FILE`."""
    log_sample: float = 1.0
    """Share of the queries that is logged."""
    log_mb: float = 100.0
    """Size at which the log is rotated, in millions of bytes."""
    log_files: int = 4
    """Files of the log that are kept, the current one included."""
    api_key: str | None = field(default=None, repr=False)
    """Key that changes need, in the header `Authorization: Bearer KEY`."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        for name in ("max_queue", "max_batch", "max_connections", "max_k", "max_rows", "max_ids"):
            self._expect(name, 1, math.inf)
        for name in ("max_budget", "max_work", "log_files"):
            self._expect(name, 1, math.inf)
        self._expect("port", 0, 65535)
        self._expect("threads", 0, 1024)
        self._expect("save_seconds", 0, 86400)
        for name in ("timeout", "reload_seconds"):
            self._expect(name, 0.01, 86400)
        for name in ("max_body_mb", "log_mb"):
            self._expect(name, 1e-3, 1e6)
        self._expect("log_sample", 0, 1)
        if self.recall is not None:
            self._expect("recall", 1e-9, 1)
        if self.api_key is not None and not self.api_key.strip():
            raise ValueError("expected an API key of at least one character, got an empty one")

    def _expect(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not least <= value <= most:
            bound = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
            raise ValueError(f"expected {name} {bound}, got {value}")

    @property
    def n_threads(self) -> int:
        """Threads that search."""
        return self.threads or os.cpu_count() or 1

    @property
    def max_body(self) -> int:
        """Largest body of a request, in bytes."""
        return int(self.max_body_mb * 1e6)
