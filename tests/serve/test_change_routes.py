"""Laws of changes over HTTP: what is acknowledged is made and saved, all of it or none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from l2route.data.labels import Labels
from l2route.index import load
from l2route.serve.media import ARROW, NPY
from l2route.serve.options import ServeOptions
from serving import DIM, QUERIES, VECTORS, client_of, saved_index


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path / "index.l2r")


@pytest.fixture
def client(path: Path) -> Iterator[TestClient]:
    """A client of a server of it."""
    with client_of(path) as client:
        yield client


def nearest(client: TestClient, vector: Any) -> int:
    """The id of the nearest vector."""
    asked = {"queries": np.asarray(vector).tolist(), "k": 1, "ef": 64}
    found: int = client.post("/search", json=asked).json()["ids"][0][0]
    return found


def test_what_is_acknowledged_is_saved(client: TestClient, path: Path) -> None:
    """After an answer, the change is found by searches and is in the directory."""
    added = client.post("/add", json={"vectors": (QUERIES[:2] + 9).tolist(), "ids": [900, -7]})
    assert added.json() == {"ids": [900, -7], "n_vectors": 302, "saved": True}
    assert nearest(client, QUERIES[1] + 9) == -7
    assert -7 in load(path)
    updated = client.post("/update", json={"ids": [900], "vectors": (QUERIES[0] - 9).tolist()})
    assert updated.json() == {"ids": [900], "n_vectors": 302, "saved": True}
    assert np.array_equal(load(path).vectors([900]), QUERIES[:1] - 9)
    deleted = client.post("/delete", json={"ids": [900, 3]})
    assert deleted.json() == {"ids": [900, 3], "n_vectors": 300, "saved": True}
    assert not {900, 3} & set(load(path))
    assert nearest(client, QUERIES[0] - 9) != 900


def test_ids_are_given_to_vectors_without(client: TestClient) -> None:
    """Vectors without ids get the numbers after the largest."""
    assert client.post("/add", json={"vectors": [QUERIES[0].tolist()]}).json()["ids"] == [300]
    assert client.post("/add", json={"vectors": QUERIES[1].tolist()}).json()["ids"] == [301]


def test_changes_in_all_types(client: TestClient) -> None:
    """Bodies of npy and Arrow change the index as JSON does."""

    def stream(**columns: Any) -> bytes:
        table, sink = pa.table(columns), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def npy(array: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    def post(route: str, media: str, content: bytes) -> dict[str, Any]:
        answer = client.post(route, content=content, headers={"content-type": media})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert post("/add", NPY, npy(QUERIES[:3]))["ids"] == [300, 301, 302]
    assert post("/add", ARROW, stream(vector=list(QUERIES[3:5]), id=[70000, 70001]))["ids"] == [
        70000,
        70001,
    ]
    assert post("/update", ARROW, stream(id=[300], vector=[QUERIES[9].tolist()]))["ids"] == [300]
    assert nearest(client, QUERIES[9]) == 300
    assert post("/delete", NPY, npy(np.array([301, 302])))["n_vectors"] == 303
    assert post("/delete", ARROW, stream(id=[300]))["n_vectors"] == 302
    assert 70001 in client.served.index  # type: ignore[attr-defined]
    wrong = client.post("/update", content=npy(QUERIES), headers={"content-type": NPY})
    assert wrong.status_code == 415


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("/add", {"vectors": [[1.0] * DIM], "ids": [5]}, "does not have, got 5"),
        ("/add", {"vectors": [[1.0] * DIM] * 2, "ids": [900]}, "expected 2 ids"),
        ("/add", {"vectors": [[1.0] * DIM] * 2, "ids": [900, 900]}, "900 repeated"),
        ("/add", {"vectors": [[1.0] * DIM], "ids": [-1]}, "other than -1"),
        ("/add", {"vectors": [[1.0] * 3]}, "expected vectors"),
        ("/add", {"vectors": [[1.0] * DIM, [1.0]]}, "expected vectors"),
        ("/add", {"vectors": [[1e30] * DIM]}, "length of at most"),
        ("/add", {"vectors": [[1.0] * DIM], "labels": ["a", "b"]}, "expected 1 names"),
        ("/add", {"vectors": [[1.0] * DIM] * 10_001}, "at most 10000 vectors, got 10001"),
        ("/update", {"ids": [5, 999], "vectors": [[1.0] * DIM] * 2}, "got 999"),
        ("/update", {"vectors": [[1.0] * DIM]}, "ids"),
        ("/delete", {"ids": [5, 999]}, "expected ids of the index, got 999"),
        ("/delete", {"ids": [5, 5]}, "5 repeated"),
        ("/delete", {"ids": ["5"]}, "ids of numbers"),
        ("/delete", {"ids": list(range(100_001))}, "at most 100000 ids"),
    ],
)
def test_a_refused_change_changes_nothing(
    client: TestClient, path: Path, route: str, body: dict[str, Any], message: str
) -> None:
    """A change of which a part is wrong is refused, and nothing is changed or saved."""
    before = (path / "meta.json").read_bytes()
    answer = client.post(route, json=body)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
    assert sorted(client.served.index) == list(range(300))  # type: ignore[attr-defined]
    assert (path / "meta.json").read_bytes() == before
    assert client.post(f"{route}?x=1", json=body).status_code == 422


def test_the_journal_has_what_is_not_saved(path: Path) -> None:
    """Changes are in the journal at once, and in the index by POST /save, and at the end."""
    with client_of(path, ServeOptions(save_seconds=3600)) as client:
        added = client.post("/add", json={"vectors": QUERIES[:1].tolist()}).json()
        assert added["saved"] is True
        assert client.get("/info").json()["unsaved_changes"] is False
        assert 300 in load(path)
        assert load(path).n_journal_bytes
        assert client.post("/save").json() == {"n_vectors": 301}
        assert 300 in load(path)
        assert not load(path).n_journal_bytes
        client.post("/add", json={"vectors": QUERIES[:1].tolist()})
        assert load(path).n_journal_bytes
    assert 301 in load(path)
    assert not load(path).n_journal_bytes


def test_labels_are_kept_with_vectors(path: Path) -> None:
    """Labels are added and removed with their vectors, and saved with them."""
    given = Labels.of([f"vector {i}" for i in range(400)])  # for more ids than there are
    with client_of(path, labels=given) as client:
        body = {"vectors": (QUERIES[:2] + 9).tolist(), "labels": ["new", "newer"]}
        assert client.post("/add", json=body).status_code == 200
        assert client.post("/save").status_code == 200
        assert load(path).names.names([300, 301, 5, 350]) == ["new", "newer", "vector 5", None]
        client.post("/delete", json={"ids": [301, 5]})
        assert load(path).names.names([300, 301, 5]) == ["new", None, None]
        client.post("/add", json={"vectors": VECTORS[5].tolist(), "ids": [5]})
        assert client.served.labels.names([5]) == [None]  # type: ignore[attr-defined]
        for labels in (["a"], ["a", "b\0"]):
            refused = client.post("/add", json={**body, "labels": labels})
            assert refused.status_code == 422
        assert len(client.served.index) == 301  # type: ignore[attr-defined]
        asked = {"queries": (QUERIES[0] + 9).tolist(), "k": 1, "ef": 64}
        found = client.post("/search", json=asked)
        assert found.json()["labels"] == [["new"]]
