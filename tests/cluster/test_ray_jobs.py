"""Laws of what fits into Ray: builds by tasks, batches of Ray Data, a deployment of Ray Serve."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from numpy.typing import NDArray

from l2route.cluster import BatchSearcher, ShardedIndex
from l2route.cluster.deployment import deployment_of
from l2route.cluster.errors import ClusterWarning
from l2route.cluster.fleet import end_shared
from l2route.cluster.runners import BuildError, Needs, RayRunner, Task, run_all
from l2route.cluster.sources import source_of
from l2route.serve.options import ServeOptions
from ray_nodes import STORE_BYTES, Nodes
from sharding import IDS, QUERIES, VECTORS, K, build_small, exact, recall

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
WIDE = len(VECTORS)
KEY = "secret"
HEADERS = {"Authorization": f"Bearer {KEY}"}


def test_tasks_build_what_one_process_builds(
    nodes: Nodes, tmp_path: Path, built_path: Path
) -> None:
    """From a table read by Ray Data, tasks build shards that answer as those of one process."""
    pq.write_table(
        pa.table({"v": list(VECTORS), "id": IDS}), tmp_path / "x.parquet", row_group_size=400
    )
    dataset = ray.data.read_parquet(str(tmp_path / "x.parquet"))
    steps: list[tuple[str, int, int]] = []
    index = build_small(
        tmp_path / "built",
        source=dataset,
        ids=None,
        column="v",
        id_column="id",
        engine="ray",
        cpus=0.5,
        progress=lambda *step: steps.append(step),
    )
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=WIDE).ids, exact(QUERIES))
    assert recall(index.search(QUERIES, K, recall=0.95).ids, exact(QUERIES)) >= 0.93
    assert {step for step, _, _ in steps} == {"divide", "neighbours", "shards"}
    assert ("shards", 3, 3) in steps


def work(number: int, log: str) -> int:
    """Fail always for 1, once for 2, never for others; note each call."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    n_calls = Path(log).read_text().split().count(str(number))
    if number == 1 or (number == 2 and n_calls == 1):
        raise OSError(f"no disk for {number}")
    return number * 10


def test_failed_tasks_are_tried_again_and_named(nodes: Nodes, tmp_path: Path) -> None:
    """A task that fails once is done at the second try; one that fails always is named."""
    log, done = str(tmp_path / "log"), list[int]()
    tasks = [Task(f"shard {n}", (n, log)) for n in range(4)]
    with pytest.raises(BuildError, match=r"errors of shard 1 \(.*no disk for 1.*\)$"):
        run_all(RayRunner(n_tries=2), work, tasks, Needs(0.5), lambda end: done.append(end.result))
    assert sorted(done) == [0, 20, 30]
    calls = Path(log).read_text().split()
    assert [calls.count(str(n)) for n in range(4)] == [1, 2, 2, 1]


def test_row_numbers_are_in_the_order_of_the_dataset(nodes: Nodes) -> None:
    """Rows of a block that comes late have the numbers of their place, and nothing else changes."""

    def delay(batch: pa.Table) -> pa.Table:
        time.sleep(1.5 * (batch["n"][0].as_py() == 0))
        return batch

    table = pa.table({"v": list(VECTORS), "n": np.arange(len(VECTORS))})
    dataset = ray.data.from_arrow([table.slice(first, 300) for first in range(0, 1500, 300)])
    dataset = dataset.map_batches(delay, batch_size=None, batch_format="pyarrow", num_cpus=0.5)
    before = source_of(dataset, column="v").fingerprint()
    parts = [part.read() for part in source_of(dataset, column="v").parts(400)]
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in parts]), np.arange(WIDE))
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in parts]), VECTORS)
    assert not dataset.context.execution_options.preserve_order
    assert source_of(dataset, column="v").fingerprint() == before  # so that a build goes on


def test_paths_are_those_of_the_caller(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of the source and of the index lead workers where they lead the caller."""
    monkeypatch.chdir(tmp_path)  # workers stay where they were started
    pq.write_table(pa.table({"v": list(VECTORS), "id": IDS}), "x.parquet", row_group_size=400)
    given = {"ids": None, "id_column": "id", "queries": None}
    index = build_small("built", source="x.parquet", engine="ray", cpus=0.5, **given)
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=WIDE).ids, exact(QUERIES))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["built", "x.parquet"]


def test_cores_that_no_node_has(nodes: Nodes) -> None:
    """If a task needs more cores than any node has, it is said that it waits for a larger one."""
    runner = RayRunner()
    with pytest.warns(ClusterWarning, match=r"expected cpus of at most 4, .*, got 5: shards wait"):
        runner.check_cores(5)
    runner.check_cores(4)


def granted(_: int) -> float:
    """Memory that Ray has reserved for this task."""
    return float(ray.get_runtime_context().get_assigned_resources().get("memory", 0))


def test_memory_is_reserved_as_far_as_there_is(nodes: Nodes) -> None:
    """A task has the memory that it needs, and that of the largest node if it needs more."""
    largest = max(node["Resources"]["memory"] for node in ray.nodes() if node["Alive"])
    for needed, expected in ((0, 0), (10**8, 10**8), (10**18, largest)):
        (done,) = RayRunner().run(granted, [Task("x", (0,))], Needs(0.5, needed))
        assert done.result == pytest.approx(expected, rel=1e-6)


def test_what_waits_fits_into_the_object_store(nodes: Nodes) -> None:
    """Parts that are sent along take at most half of the store before others are done."""
    for n_sent, most in ((STORE_BYTES // 6, 3), (STORE_BYTES, 1), (0, 10)):
        waiting, counts = set[int](), list[int]()

        def tasks(waiting: set[int] = waiting, counts: list[int] = counts) -> Iterator[Task]:
            for number in range(10):
                counts.append(len(waiting))  # the next one is asked for before it is submitted
                waiting.add(number)
                yield Task(f"part {number}", (number,))

        for end in RayRunner().run(granted, tasks(), Needs(0.1, 0, n_sent)):
            waiting.remove(end.task.arguments[0])
        assert max(counts) == min(most, 9)


def test_batches_of_ray_data_are_answered(nodes: Nodes, built_path: Path) -> None:
    """`map_batches` adds the answers of the index to every row."""
    table = pa.table({"n": np.arange(len(QUERIES)), "vector": list(QUERIES)})
    found = ray.data.from_arrow(table).map_batches(
        BatchSearcher,
        fn_constructor_kwargs={"path": str(built_path), "k": K, "recall": 0.95},
        batch_size=64,
        batch_format="pyarrow",
        concurrency=1,
        num_cpus=0.5,
    )
    rows = sorted(found.take_all(), key=lambda row: row["n"])
    expected = ShardedIndex(built_path).search(QUERIES, K, recall=0.95)
    np.testing.assert_array_equal(np.stack([row["ids"] for row in rows]), expected.ids)
    np.testing.assert_array_equal(np.stack([row["distances"] for row in rows]), expected.distances)


def test_a_batch_needs_its_column(built_path: Path) -> None:
    """The error names the columns that there are."""
    with pytest.raises(ValueError, match="expected a column vector, got q"):
        BatchSearcher(str(built_path), K)(pa.table({"q": list(QUERIES)}))


def test_a_batch_searcher_needs_a_path_that_workers_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a relative path says where it was looked for, and what is needed."""
    monkeypatch.chdir(tmp_path)
    expected = f"{tmp_path}/words: .* expected an absolute path or a URL, .*, got words$"
    with pytest.raises(FileNotFoundError, match=expected):
        BatchSearcher("words", K)
    with pytest.raises(FileNotFoundError, match=r"manifest\.json$"):
        BatchSearcher(f"{tmp_path}/words", K)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def address(
    nodes: Nodes, built_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a deployment of a copy of the small index."""
    import shutil

    from ray import serve

    path = tmp_path_factory.mktemp("served") / "copy"
    shutil.copytree(built_path, path)
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    app = deployment_of(
        str(path), ServeOptions(api_key=KEY), cpus=0.1, replicas=1, n_bytes=0, name="served"
    )
    serve.run(app, name="served", route_prefix="/")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    end_shared(ray, "served")


def search(address: str, queries: NDArray[np.float32], **asked: object) -> list[list[int]]:
    """Ask over HTTP in JSON."""
    body = {"queries": queries.tolist(), "k": K, **asked}
    answer = httpx.post(f"{address}/search", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    ids: list[list[int]] = answer.json()["ids"]
    return ids


def test_a_deployment_answers_as_the_server_does(address: str) -> None:
    """Searches, filters, changes and status have the routes of the single-machine server."""
    assert search(address, QUERIES, ef=WIDE) == exact(QUERIES).tolist()
    assert recall(np.array(search(address, QUERIES, recall=0.95)), exact(QUERIES)) >= 0.93
    few = search(address, QUERIES[:2], ef=WIDE, where=IDS[:3].tolist())
    assert {id_ for row in few for id_ in row} == set(IDS[:3].tolist())
    info = httpx.get(f"{address}/info", timeout=60).json()
    assert (info["n_vectors"], info["metric"]) == (len(VECTORS), "l2")
    assert httpx.get(f"{address}/health", timeout=60).json() == {"status": "ok"}
    assert b"l2route_queries" in httpx.get(f"{address}/metrics", timeout=60).content
    wrong = httpx.post(f"{address}/search", json={"queries": [[1.0]]}, timeout=60)
    assert wrong.status_code == 422
    assert "expected queries" in wrong.json()["detail"]


def test_a_deployment_takes_changes(address: str) -> None:
    """An added vector is found over HTTP, moves when it is updated, and goes when it is deleted."""
    for route, body in (
        ("add", {"vectors": QUERIES[:1].tolist(), "ids": [10**9]}),
        ("update", {"vectors": QUERIES[1:2].tolist(), "ids": [10**9]}),
    ):
        refused = httpx.post(f"{address}/{route}", json=body, timeout=60)
        assert refused.status_code == 401
        answer = httpx.post(f"{address}/{route}", json=body, headers=HEADERS, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["n_vectors"] == len(VECTORS) + 1
        at = 0 if route == "add" else 1
        assert search(address, QUERIES[at : at + 1], ef=WIDE)[0][0] == 10**9
    answer = httpx.post(f"{address}/delete", json={"ids": [10**9]}, headers=HEADERS, timeout=60)
    assert answer.json()["n_vectors"] == len(VECTORS)
    assert search(address, QUERIES[:2], ef=WIDE) == exact(QUERIES[:2]).tolist()


def test_the_command_serves_until_a_signal(copied_path: Path) -> None:
    """`cluster serve` starts Ray on this machine, answers over HTTP, and ends all of it."""
    port = free_port()
    asked = f"cluster serve {copied_path} --port {port} --replicas 1 --cpus 0.1 --address local"
    process = subprocess.Popen(
        [sys.executable, "-m", "l2route", *asked.split()],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"L2ROUTE_API_KEY": "secret"},
    )
    with process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("serving"))
            assert line == f"serving {copied_path} at http://127.0.0.1:{port}\n"
            address = f"http://127.0.0.1:{port}"
            assert search(address, QUERIES, ef=WIDE) == exact(QUERIES).tolist()
            url, change = f"{address}/delete", {"ids": [0]}
            assert httpx.post(url, json=change, timeout=60).status_code == 401
            key = {"Authorization": "Bearer secret"}
            assert httpx.post(url, json=change, headers=key, timeout=60).status_code != 401
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    assert code == 0
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


def test_the_command_refuses_to_wait_for_cores(nodes: Nodes, built_path: Path) -> None:
    """`cluster serve` says which cores are missing, in place of waiting for them."""
    asked = f"cluster serve {built_path} --cpus 100 --address {nodes.address}"
    done = subprocess.run(
        [sys.executable, "-m", "l2route", *asked.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "expected 700 cores for 6 actors of shards and the server" in done.stderr
