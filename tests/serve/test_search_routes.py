"""Laws of searches over HTTP: they answer as the index does, in every media type."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.search.calibrate import OutOfReachError
from l2route.serve.engine import RECALLS
from l2route.serve.media import ARROW, JSON, NPY
from l2route.serve.options import ServeOptions
from serving import DIM, QUERIES, VECTORS, client_of, saved_index


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server with labels of the first 100 vectors."""
    path = saved_index(tmp_path_factory.mktemp("serve") / "index.l2r")
    labels = Labels.of([f"vector {i}" for i in range(100)])
    with client_of(path, labels=labels) as client:
        yield client


def as_npy(array: NDArray[Any]) -> bytes:
    """An array as a npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def as_arrow(**columns: Any) -> bytes:
    """Columns as an Arrow stream."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read(answer: httpx.Response) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids and distances of an answer of any type."""
    assert answer.status_code == 200, answer.text
    media = answer.headers["content-type"]
    if media == NPY:
        found = np.load(io.BytesIO(answer.content))
        return found["id"], found["distance"]
    if media == ARROW:
        table = pa.ipc.open_stream(answer.content).read_all()
        return np.array(table["ids"].to_pylist()), np.array(table["distances"].to_pylist(), "f4")
    content = answer.json()
    return np.array(content["ids"]), np.array(content["distances"], "f4")


ASKED: list[dict[str, Any]] = [
    {},
    {"k": 3},
    {"k": 5, "ef": 40},
    {"budget": 60},
    {"slack": 0.2, "k": 4},
    {"recall": 0.9},
    {"recall": 0.8, "guarantee": "mean"},
    {"space": "original", "k": 2},
    {"where": [1, 5, 7, 200], "k": 2, "ef": 10},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_all_types_answer_as_the_index(client: TestClient, asked: dict[str, Any]) -> None:
    """Queries in JSON, npy and Arrow have the answers of `RoutingIndex.search`."""
    expected = client.served.index.search(QUERIES, **asked)  # type: ignore[attr-defined]
    query = {**asked, "where": ",".join(map(str, asked.get("where", [])))}
    if "where" not in asked:
        query.pop("where")
    answers = [
        client.post("/search", json={"queries": QUERIES.tolist(), **asked}),
        client.post("/search", json={"queries": QUERIES.tolist()}, params=query),
        client.post(
            "/search", content=as_npy(QUERIES), params=query, headers={"content-type": NPY}
        ),
        client.post(
            "/search",
            content=as_arrow(vector=list(QUERIES)),
            params=query,
            headers={"content-type": ARROW},
        ),
    ]
    assert [answer.headers["content-type"] for answer in answers] == [JSON, JSON, NPY, ARROW]
    for answer in answers:
        ids, distances = read(answer)
        assert np.array_equal(ids, expected.ids)
        assert np.array_equal(distances, expected.distances)


def test_one_query_is_answered_alike(client: TestClient) -> None:
    """One query [dim] has the first row of the answers, in every type."""
    expected = client.served.index.search(QUERIES[:1], k=3).ids  # type: ignore[attr-defined]
    answers = [
        client.post("/search", json={"queries": QUERIES[0].tolist(), "k": 3}),
        client.post("/search?k=3", content=as_npy(QUERIES[0]), headers={"content-type": NPY}),
    ]
    for answer in answers:
        assert np.array_equal(read(answer)[0], expected)


@pytest.mark.parametrize("accept", [JSON, NPY, ARROW])
def test_answers_have_the_type_that_is_accepted(client: TestClient, accept: str) -> None:
    """`Accept` says what type an answer has, whatever type the queries have."""
    for header in (accept, f"text/html;q=0.9, {accept};q=0.8, application/xml", f"{accept}, */*"):
        answer = client.post(
            "/search", json={"queries": QUERIES.tolist()}, headers={"accept": header}
        )
        assert answer.headers["content-type"] == accept
        assert len(read(answer)[0]) == len(QUERIES)


def test_answers_have_labels(client: TestClient) -> None:
    """Labels come with ids in JSON and Arrow; null where an id has none."""
    body = {"queries": VECTORS[[5, 250]].tolist(), "k": 1, "ef": 50}
    assert client.post("/search", json=body).json()["labels"] == [["vector 5"], [None]]
    answer = client.post("/search", json=body, headers={"accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["labels"].to_pylist() == [["vector 5"], [None]]


def test_fewer_answers_than_k(client: TestClient) -> None:
    """JSON has what was found; npy and Arrow fill up with −1 and inf. Unknown ids are ignored."""
    body = {"queries": QUERIES[:2].tolist(), "k": 4, "where": [3, 9, 10**12, -5]}
    found = client.post("/search", json=body).json()
    assert [sorted(row) for row in found["ids"]] == [[3, 9], [3, 9]]
    assert [len(row) for row in found["distances"]] == [2, 2]
    assert [len(row) for row in found["labels"]] == [2, 2]
    ids, distances = read(client.post("/search", json=body, headers={"accept": NPY}))
    assert (ids[:, 2:] == -1).all()
    assert np.isinf(distances[:, 2:]).all()
    body["where"] = []
    assert client.post("/search", json=body).json()["ids"] == [[], []]


def test_awkward_columns_and_arrays_are_read(client: TestClient) -> None:
    """Fixed and large lists, half floats, integers, Fortran order and big endian are read."""
    expected = client.served.index.search(np.round(QUERIES * 2), k=2).ids  # type: ignore[attr-defined]
    whole = np.round(QUERIES * 2)
    flat = pa.array(whole.reshape(-1).astype(np.float16))
    lists = pa.FixedSizeListArray.from_arrays(flat, DIM)
    large = pa.array(list(whole.astype(np.int16)), pa.large_list(pa.int16()))
    for column in (lists, large, lists.slice(0)):
        body = as_arrow(vector=column)
        answer = client.post("/search?k=2", content=body, headers={"content-type": ARROW})
        assert np.array_equal(read(answer)[0], expected)
    for array in (np.asfortranarray(whole), whole.astype(">f8"), whole.astype(np.int8)):
        answer = client.post("/search?k=2", content=as_npy(array), headers={"content-type": NPY})
        assert np.array_equal(read(answer)[0], expected)


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"json": {"queries": [1.0] * 7}}, 422, r"expected queries \[\*, 8\], got \[\*, 7\]"),
    ({"json": {"queries": [[1.0] * 8, [2.0]]}}, 422, "expected queries"),
    ({"json": {"queries": [1.0] * 8, "k": 0}}, 422, "greater than or equal to 1, got 0"),
    ({"json": {"queries": [1.0] * 8, "k": 10**6}}, 422, "expected k of at most 1000, got 1000000"),
    ({"json": {"queries": [1.0] * 8, "kk": 1}}, 422, "kk"),
    ({"json": {"k": 1}}, 422, "queries"),
    ({"json": {"queries": ["a"] * 8}}, 422, "queries of numbers"),
    ({"json": {"queries": [1e39] * 8}}, 422, "NaN or inf in row 0"),
    ({"json": {"queries": [1.0] * 8, "recall": 0.9, "ef": 9}}, 422, "got recall=0.9 with ef=9"),
    ({"json": {"queries": [1.0] * 8, "guarantee": "p95"}}, 422, "got 'p95' without"),
    ({"json": {"queries": [1.0] * 8, "recall": 0.9, "guarantee": "p"}}, 422, "guarantee"),
    ({"json": {"queries": [1.0] * 8, "space": "learned"}}, 422, "learned"),
    ({"json": {"queries": [1.0] * 8, "ef": 10**9}}, 422, "expected ef of at most 100000"),
    ({"json": {"queries": [1.0] * 8, "where": [2**63]}}, 422, "where of whole numbers"),
    ({"json": {"queries": [1.0] * 8, "where": list(range(100_001))}}, 422, "at most 100000 ids"),
    ({"json": {"queries": [[1.0] * 8] * 10_001}}, 422, "at most 10000 queries, got 10001"),
    ({"json": {"queries": [[1.0] * 8] * 1_001, "k": 1000}}, 422, "at most 1000000 answers"),
    ({"content": b"{]", "headers": {"content-type": JSON}}, 400, "expected JSON with"),
    ({"content": b"", "headers": {"content-type": JSON}}, 400, "expected JSON with"),
    ({"content": b"\x93NUMPY", "headers": {"content-type": NPY}}, 400, "expected a npy body"),
    ({"content": as_npy(QUERIES)[:-1], "headers": {"content-type": NPY}}, 400, "bytes of data"),
    (
        {"content": as_npy(np.array(["a"], dtype=object)), "headers": {"content-type": NPY}},
        400,
        "expected plain values",
    ),
    ({"content": as_npy(QUERIES > 0), "headers": {"content-type": NPY}}, 422, "real numbers"),
    ({"content": b"ARROW1", "headers": {"content-type": ARROW}}, 400, "expected an Arrow stream"),
    (
        {"content": as_arrow(x=[[1.0] * 8]), "headers": {"content-type": ARROW}},
        422,
        "expected columns out of vector, id, label, got x",
    ),
    (
        {"content": as_arrow(vector=[[1.0] * 8, None]), "headers": {"content-type": ARROW}},
        422,
        "expected no nulls",
    ),
    (
        {"content": as_arrow(vector=[[1.0] * 8, [1.0]]), "headers": {"content-type": ARROW}},
        422,
        "expected vectors of one length, got 1 and 8",
    ),
    ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415, "got 'text/plain'"),
    ({"content": b"{}"}, 415, "got none"),
    (
        {"json": {"queries": [1.0] * 8}, "headers": {"accept": "text/html"}},
        406,
        "expected Accept .*, got 'text/html'",
    ),
    ({"json": {"queries": [1.0] * 8}, "params": {"k": "many"}}, 422, "got 'many'"),
    ({"json": {"queries": [1.0] * 8}, "params": {"q": "1"}}, 422, "q to be valid"),
]


@pytest.mark.parametrize(("request_", "status", "message"), REFUSED)
def test_what_is_wrong_is_refused(
    client: TestClient, request_: dict[str, Any], status: int, message: str
) -> None:
    """A request that is broken or asks for too much is refused with what was expected."""
    answer = client.post("/search", **request_)
    assert answer.status_code == status, answer.text
    assert re.search(message, answer.json()["detail"]), answer.text


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_columns_are_refused(client: TestClient, codec: str) -> None:
    """A stream of compressed buffers, which may be far larger than the body, is refused."""
    table = pa.table({"vector": [[0.0] * DIM] * 1000})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    answer = client.post("/search", content=body, headers={"content-type": ARROW})
    assert answer.status_code == 400
    assert "not compressed" in answer.json()["detail"]


def measured(client: TestClient) -> set[tuple[float, int]]:
    """The recalls and ks of the settings that the index has."""
    index = client.served.index  # type: ignore[attr-defined]
    return {(each.target, each.k) for each in index.settings}


def test_nobody_uses_up_the_settings(client: TestClient) -> None:
    """Whatever recalls, ks and spaces clients ask for, few are measured, and none is refused."""
    query, before = QUERIES[0].tolist(), measured(client)
    for i in range(80):
        asked = {"queries": query, "recall": 0.5 + i / 200, "k": 1 + i % 9}
        wrong = client.post("/search", json={**asked, "space": f"space {i}"})
        assert (wrong.status_code, "expected a space of" in wrong.text) == (422, True)
        answer = client.post("/search", json=asked)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["ids"][0]) == 1 + i % 9
    new = measured(client) - before
    assert new <= {(recall, k) for recall in RECALLS for k in (1, 2, 5, 10)}


def test_recalls_are_rounded_up(client: TestClient) -> None:
    """A recall and a k that nobody has measured are those of the next stricter setting, cut to k.

    A setting that the index has is used as it is.
    """
    index = client.served.index  # type: ignore[attr-defined]
    body = {"queries": QUERIES.tolist(), "recall": 0.871, "k": 3}
    ids, _ = read(client.post("/search", json=body))
    assert (0.9, 5) in measured(client)
    assert np.array_equal(ids, index.search(QUERIES, 5, recall=0.9).ids[:, :3])
    index.setting(0.871, 3)
    ids, _ = read(client.post("/search", json=body))
    assert np.array_equal(ids, index.search(QUERIES, 3, recall=0.871).ids)


def test_the_default_recall_is_not_rounded(tmp_path: Path) -> None:
    """The recall of the server's options holds as it is, for every k."""
    path = saved_index(tmp_path / "index.l2r")
    with client_of(path, ServeOptions(recall=0.88)) as client:
        body = {"queries": QUERIES[0].tolist(), "k": 4}
        assert client.post("/search", json=body).status_code == 200
        assert measured(client) == {(0.88, 10), (0.88, 5)}


def test_what_is_out_of_reach_is_measured_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recall that no setting reaches is refused every time, and measured now and then only."""
    index, calls = client.served.index, list[float]()  # type: ignore[attr-defined]

    def search(*_: object, recall: float, **__: object) -> None:
        calls.append(recall)
        raise OutOfReachError("expected a recall in reach")

    monkeypatch.setattr(index, "search", search)
    body = {"queries": QUERIES[0].tolist(), "k": 2, "recall": 0.9985}
    for _ in range(3):
        answer = client.post("/search", json=body)
        assert (answer.status_code, "in reach" in answer.text) == (422, True)
    assert calls == [0.999]
