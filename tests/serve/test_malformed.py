"""Laws of a server that gets a thousand broken bodies: it refuses them, and stays as it was."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from l2route.index import load
from l2route.serve.media import ARROW, JSON, NPY
from living import check_structure
from serving import QUERIES, saved_index, server_of

N_BODIES = 1000
JUNK = [
    '"',
    "[",
    "]",
    "{",
    "}",
    ",",
    "null",
    "1e999",
    "-0",
    "NaN",
    "true",
    "\\u0000",
    "[[",
    "1" * 400,
]
"""What JSON bodies are spoilt with."""


def as_npy() -> bytes:
    """Queries as npy."""
    stream = io.BytesIO()
    np.save(stream, QUERIES[:5])
    return stream.getvalue()


def as_arrow() -> bytes:
    """Vectors and ids as an Arrow stream."""
    table = pa.table({"vector": list(QUERIES[:5]), "id": range(5)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def as_json(rng: random.Random) -> bytes:
    """A body of one of the routes."""
    rows = QUERIES[:3].round(2).tolist()
    bodies = [{"queries": rows, "k": 3, "where": [1]}, {"vectors": rows}, {"ids": [1, 2]}]
    return json.dumps(rng.choice(bodies)).encode()


def spoilt(body: bytes, rng: random.Random) -> bytes:
    """A body with bytes cut off, flipped, repeated or put in."""
    kind, at = rng.randrange(4), rng.randrange(len(body))
    if kind == 0:
        return body[:at]
    if kind == 1:
        changed = bytearray(body)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 2:
        return body[:at] + body[at : at + rng.randint(1, 200)] * 2 + body[at:]
    return body[:at] + rng.choice(JUNK).encode() + body[at + rng.randint(0, 3) :]


def test_broken_bodies_do_no_harm(tmp_path: Path) -> None:
    """Each body gets an answer that is no server error; afterwards all works and is intact."""
    rng = random.Random(0)
    path = saved_index(tmp_path / "index.l2r")
    kinds: list[tuple[str, Callable[[], bytes]]] = [
        (JSON, lambda: as_json(rng)),
        (NPY, as_npy),
        (ARROW, as_arrow),
    ]
    statuses: Counter[int] = Counter()
    with server_of(path, "--save-seconds", "3600") as server:
        for _ in range(N_BODIES):
            media, make = rng.choice(kinds)
            body, route = spoilt(make(), rng), rng.choice(["search", "add", "update", "delete"])
            answer = server.client.post(f"/{route}", content=body, headers={"content-type": media})
            assert answer.status_code in (200, 400, 415, 422), (route, media, body, answer.text)
            if answer.status_code != 200:
                assert answer.json()["detail"].startswith("expected"), answer.text
            statuses[answer.status_code] += 1
        assert server.client.get("/health").status_code == 200
        found = server.client.post("/search", json={"queries": QUERIES.tolist(), "k": 5})
        assert np.isfinite(found.json()["distances"]).all()
        server.end()
    assert statuses[400] > 300
    assert statuses[422] > 50
    index = load(path)
    check_structure(index)
    assert np.isfinite(index.vectors(index.ids)).all()
