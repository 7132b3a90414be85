"""Laws of the page's files and endpoints."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from browsers import serving
from indexes import DIM, QUERIES, VALIDATION, VECTORS, built
from l2route.data.labels import Labels
from l2route.index import RoutingIndex
from l2route.serve.app import create_app
from l2route.serve.options import ServeOptions
from l2route.serve.page_answers import suggested
from l2route.serve.served import Served

FAR = 2**62
"""An id that JavaScript's numbers cannot hold."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """An index with awkward ids and labels, some of which are of deleted vectors."""
    ids = np.arange(len(VECTORS)) + FAR
    index = built(ids=ids)
    index.validate_with(VALIDATION)
    index.compress("int8")
    index.delete(ids[-10:])
    index.setting(0.95, 5)
    path = tmp_path_factory.mktemp("page") / "index.l2r"
    index.save(path)
    names = [f"word{i}" for i in range(len(ids))]
    names[5], names[6], names[7], names[8] = "twice", "twice", "1, 2", str(FAR + 9)
    return Served(path, Labels.of(names, ids))


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    """A client of a server with the page."""
    with serving(create_app(served, ServeOptions())) as url, httpx.Client(base_url=url) as client:
        yield client


def explain(client: httpx.Client, **asked: Any) -> dict[str, Any]:
    """The answer to what the page asks."""
    response = client.post("page/explain", json=asked, timeout=30)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_files_are_served_with_a_strict_policy(client: httpx.Client) -> None:
    """The page names only files of the server, and its policy allows nothing else."""
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "<script>" not in page.text
    assert " style=" not in page.text
    named = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert named
    for name in named:
        assert name.startswith("page/")  # relative: also below another path of a proxy
        assert client.get(name).status_code == 200, name
    for name in re.findall(r'from "\./([^"]+)"', client.get("page/page.js").text):
        found = client.get(f"page/{name}")
        assert found.headers["content-type"].startswith("text/javascript")
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("page/no-such-file").status_code == 404
    assert client.get("page/..%2Fpages.py").status_code == 404


def test_no_file_names_another_server() -> None:
    """No file of the page or of the drawing has an address of the network but SVG's namespace."""
    import l2route

    root = Path(l2route.__file__).parent
    files = [*(root / "serve/page").iterdir(), *(root / "explain/drawing").iterdir()]
    assert len(files) > 6
    for path in files:
        urls = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", path.read_text()))
        assert urls <= {"http://www.w3.org/2000/svg"}, path


def test_explanation_of_a_label(client: httpx.Client, served: Served) -> None:
    """A label is explained as `RoutingIndex.explain` does; ids are text and keep all digits."""
    answer = explain(client, text="word3", k=5, budget=80)
    assert answer["name"] == "word3"
    drawn = answer["explanation"]
    found = served.index.explain(served.index.vectors([FAR + 3])[0], 5, budget=80)
    assert drawn["ids"] == [str(id_) for id_ in found.ids.tolist()]
    assert drawn["names"][drawn["neighbors"][0]] == "word3"
    assert [walk["space"] for walk in drawn["walks"]] == ["original", "original-int8"]
    assert drawn["walks"][1]["visited"] == found.walks[1].visited.tolist()


def test_what_is_typed(client: httpx.Client) -> None:
    """Labels come before ids and vectors that look the same; # means an id."""
    assert explain(client, text=" word3 ")["name"] == "word3"
    assert explain(client, text=f"{FAR + 3}")["name"] == "word3"
    assert explain(client, text=f"# {FAR + 3}")["name"] == "word3"
    assert explain(client, text="1, 2")["name"] == "1, 2"
    ids = explain(client, text=f"{FAR + 9}")["explanation"]
    assert ids["ids"][ids["neighbors"][0]] == str(FAR + 8)  # the label, not the id
    ids = explain(client, text=f"#{FAR + 9}")["explanation"]
    assert ids["ids"][ids["neighbors"][0]] == str(FAR + 9)
    assert explain(client, text="anything", id=str(FAR + 6))["name"] == "twice"
    for text in (
        str(QUERIES[0].tolist()),
        "\n".join(map(str, QUERIES[0].tolist())),
        ";".join(map(str, QUERIES[0].tolist())),
        f"({', '.join(map(str, QUERIES[0].tolist()))},)",
        "−1 " + "+.5e0 " * (DIM - 1),
    ):
        assert f"({DIM} numbers)" in explain(client, text=text)["name"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"text": "unheard of"}, "Expected a label, an id or a vector, got 'unheard of'."),
        ({"text": "twice"}, "2 vectors are labelled 'twice': choose one by its id."),
        ({"text": ""}, "Expected a label"),
        ({"text": f"{FAR + len(VECTORS) - 1}"}, "Expected an id of the index"),
        ({"text": f"word{len(VECTORS) - 1}"}, "Expected a label"),  # deleted
        ({"text": "1,2"}, "Expected a vector of 12 numbers, got 2"),
        ({"text": "inf," * DIM}, "Expected a label"),
        ({"text": "1e39," * DIM}, "xpected"),
        ({"text": "word3", "id": str(FAR * 4)}, "xpected"),
        ({"text": "word3", "id": "-1"}, "expected ids other than -1"),
        ({"text": "word3", "budget": 1}, "expected a budget"),
        ({"text": "word3", "slack": 0.1, "ef": 3000}, "expected ef of at most 2048"),
    ],
)
def test_refusals(client: httpx.Client, asked: dict[str, Any], message: str) -> None:
    """What cannot be searched for is refused in words."""
    response = client.post("page/explain", json=asked)
    assert response.status_code == 422
    assert message in response.json()["detail"]


@pytest.mark.parametrize(
    "asked",
    [
        {"text": "word3", "k": 101},
        {"text": "word3", "k": 0},
        {"text": "word3", "budget": 20_001},
        {"text": "word3", "ef": 4097},
        {"text": "word3", "slack": 1.5},
        {"text": "word3", "rerank": 0},
        {"text": "x" * 400_001},
        {"text": "word3", "id": "1; drop"},
        {"text": "word3", "unheard": 1},
        {},
    ],
)
def test_sizes_are_bounded(client: httpx.Client, asked: dict[str, Any]) -> None:
    """Requests beyond the page's own bounds are refused."""
    assert client.post("page/explain", json=asked).status_code == 422


def test_hard_texts_are_read_at_once(client: httpx.Client) -> None:
    """No text takes long to read, however many blanks and digits it has."""
    for text in (" " * 300_000 + "x", "1" * 300_000, "1 " * 150_000 + "x", "[" * 300_000):
        begin = time.perf_counter()
        assert client.post("page/explain", json={"text": text}).status_code == 422
        assert time.perf_counter() - begin < 5


def test_suggestions(client: httpx.Client) -> None:
    """Labels that contain a text are suggested, if the index has their vectors."""
    found = client.get("page/labels", params={"text": "WORD39"}).json()
    assert found[0] == {"id": str(FAR + 39), "name": "word39"}
    assert len(found) <= 8
    assert f"word{len(VECTORS) - 1}" not in [each["name"] for each in found]
    assert client.get("page/labels", params={"text": "no such"}).json() == []
    assert client.get("page/labels", params={"text": "x" * 201}).status_code == 422
    by_id = client.get("page/labels", params={"text": f"#{FAR + 4}"}).json()
    assert by_id == [{"id": str(FAR + 4), "name": "word4"}]


def test_about(client: httpx.Client, served: Served) -> None:
    """The page learns what the index is, and has examples and limits that work."""
    found = client.get("page/about").json()
    assert found["n_vectors"] == len(served.index)
    assert (found["dim"], found["metric"]) == (DIM, "l2")
    assert found["spaces"] == ["original", "original-int8"]
    assert len(found["examples"]) == 6
    assert sum(each.get("is_default", False) for each in found["limits"]) == 1
    assert "recall@5 of 0.95" in [each["text"] for each in found["limits"]]
    for limit in found["limits"]:
        asked = {name: limit[name] for name in limit if name not in ("text", "is_default")}
        explain(client, text=found["examples"][0]["name"], id=found["examples"][0]["id"], **asked)


def test_curve_is_measured_once(client: httpx.Client, served: Served) -> None:
    """Recall against cost has both spaces, the setting chosen, and is kept."""
    first = client.get("page/curve", params={"k": 5}, timeout=60).json()
    assert [curve["space"] for curve in first["curves"]] == ["original", "original-int8"]
    (chosen,) = first["curves"][1]["chosen"]
    (setting,) = served.index.settings
    assert chosen["target"] == 0.95
    assert chosen["limits"]["rerank"] == setting.rerank
    assert client.get("page/curve", params={"k": 5}).json() == first
    deep = client.get("page/curve", params={"k": 101})
    assert deep.status_code == 422


def test_an_index_that_becomes_empty(tmp_path: Path) -> None:
    """The page of an index without vectors, labels and validation queries says what is missing."""
    RoutingIndex.empty(DIM).save(tmp_path / "empty.l2r")
    served = Served(tmp_path / "empty.l2r")
    assert suggested(served, "1") == []
    with serving(create_app(served, ServeOptions())) as url, httpx.Client(base_url=url) as client:
        assert client.get("page/about").json()["examples"] == []
        answer = client.post("page/explain", json={"text": ",".join(["1"] * DIM)})
        assert "an empty one" in answer.json()["detail"]
        assert "expected validation queries" in client.get("page/curve").json()["reason"]
