"""Laws of the build in one process: resumable, named failures, the same from any source."""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import l2route
from l2route.cluster import building
from l2route.cluster import tasks as tasks_of_shards
from l2route.cluster.manifest import MANIFEST, SHARD
from l2route.cluster.runners import BuildError, Done, LocalRunner, Needs, Task, Work
from l2route.cluster.sharded import ShardedIndex
from l2route.cluster.workspace import WORK, Workspace
from sharding import IDS, LOG, N_SHARDS, QUERIES, VECTORS, K, build_small, exact, recall


class Counter:
    """Counts the shards that are built, and fails for some of them."""

    def __init__(self, *failing: int) -> None:
        self.built: list[int] = []
        self.failing = set(failing)

    def __call__(self, workspace: Workspace, number: int, *others: Any) -> dict[str, Any]:
        """Build a shard as usual, unless it shall fail."""
        self.built.append(number)
        if number in self.failing:
            raise OSError(f"no space left for {number}")
        return tasks_of_shards.build_shard(workspace, number, *others)


def test_every_vector_is_in_one_shard(built_path: Path) -> None:
    """The shards have all vectors, each once, and nothing of the build is left."""
    index = ShardedIndex(built_path)
    ids = np.concatenate([shard.index.ids for shard in index.shards])
    assert sorted(ids.tolist()) == sorted(IDS.tolist())
    assert len(index) == len(VECTORS)
    assert not (built_path / WORK).exists()
    rows = np.argsort(IDS)
    for number, shard in enumerate(index.shards):
        own = VECTORS[rows[np.searchsorted(IDS[rows], shard.index.ids)]]
        assert (index.router.partition.assign(own) == number).all()


def test_exhaustive_answers_are_those_of_a_single_index(built_path: Path) -> None:
    """Asked without limits, all shards together answer as one index and as a plain sort."""
    found = ShardedIndex(built_path).search(QUERIES, K, ef=len(VECTORS))
    single = l2route.RoutingIndex.build(VECTORS, ids=IDS).search(QUERIES, K, ef=len(VECTORS))
    np.testing.assert_array_equal(found.ids, single.ids)
    np.testing.assert_allclose(found.distances, single.distances, rtol=1e-6)
    np.testing.assert_array_equal(found.ids, exact(QUERIES))
    assert (found.n_asked == N_SHARDS).all()


def test_the_recall_is_reached_on_other_queries(built_path: Path) -> None:
    """Test queries reach the recall that was calibrated on validation queries, and ask fewer."""
    index = ShardedIndex(built_path)
    (point,) = index.manifest.points
    found = index.search(QUERIES, K, recall=0.95)
    assert point.target == 0.95
    assert point.recall >= 0.95
    assert recall(found.ids, exact(QUERIES)) >= 0.93  # measured: 0.955, on 200 queries
    assert found.n_asked.mean() < N_SHARDS
    assert found.n_computed.mean() == pytest.approx(point.n_computed, rel=0.2)


def test_another_recall_is_measured_when_it_is_asked_for(copied_path: Path) -> None:
    """A recall that was not measured is measured once, and kept if that is asked for."""
    index = ShardedIndex(copied_path)
    found = index.search(QUERIES, K, recall=0.8)
    assert recall(found.ids, exact(QUERIES)) >= 0.77
    point = index.calibrate(0.9, K, save=True)
    assert ShardedIndex(copied_path).known_point(0.9, K) == point


def test_shards_that_are_built_are_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that fails each time is named, the others are kept, and the next run builds it."""
    counter = Counter(1)
    monkeypatch.setattr(building, "build_shard", counter)
    with pytest.raises(BuildError, match=r"shard 1 \(OSError: no space left for 1\)"):
        build_small(tmp_path / "x", tries=2)
    assert counter.built == [0, 1, 1, 2]
    assert not (tmp_path / "x" / MANIFEST).exists()
    counter = Counter()
    monkeypatch.setattr(building, "build_shard", counter)
    index = build_small(tmp_path / "x")
    assert counter.built == [1]
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=len(VECTORS)).ids, exact(QUERIES))
    build_small(tmp_path / "x")  # a finished build is not done again
    assert counter.built == [1]


def test_a_half_written_shard_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard whose files are not those of its mark is not taken over."""
    monkeypatch.setattr(building, "build_shard", Counter(2))
    with pytest.raises(BuildError):
        build_small(tmp_path / "x", tries=1)
    shard = tmp_path / "x" / "shard-0000"
    meta = json.loads((shard / "meta.json").read_text())
    (shard / "meta.json").write_text(json.dumps(meta | {"more": 1}))
    (tmp_path / "x" / "shard-0001" / SHARD).unlink()
    counter = Counter()
    monkeypatch.setattr(building, "build_shard", counter)
    build_small(tmp_path / "x")
    assert counter.built == [0, 1, 2]


def test_a_build_goes_on_only_with_the_same_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other vectors, queries or options, and directories with other files, are refused."""
    monkeypatch.setattr(building, "build_shard", Counter(0, 1, 2))
    with pytest.raises(BuildError):
        build_small(tmp_path / "x", tries=1)
    for other in ({"source": VECTORS + 1}, {"queries": LOG[:900]}, {"seed": 1}, {"n_shards": 2}):
        with pytest.raises(ValueError, match="the same vectors"):
            build_small(tmp_path / "x", **other)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "letters.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"letters\.txt"):
        build_small(tmp_path / "y")


def test_ids_are_distinct_over_all_parts(tmp_path: Path) -> None:
    """An id that is in two parts of a table is named before any shard is built."""
    ids = np.concatenate([IDS[:400], IDS[:399], [1]])
    tables = pa.table({"v": list(VECTORS[:800]), "id": ids})
    pq.write_table(tables, tmp_path / "x.parquet", row_group_size=400)
    given = {"source": tmp_path / "x.parquet", "ids": None, "id_column": "id", "queries": None}
    for _ in range(2):  # the next run does not take the parts for checked
        with pytest.raises(ValueError, match=rf"distinct ids, got {IDS[:399].min()}, "):
            build_small(tmp_path / "x", n_shards=2, **given)
    assert not (tmp_path / "x" / "shard-0000").exists()


def test_every_shard_needs_vectors(tmp_path: Path) -> None:
    """If some shards are left without vectors, the error says so before any is built."""
    source = np.repeat(VECTORS[:2], 50, axis=0)
    expected = "at least one vector in each of 4 shards, got none in shard .: build fewer shards"
    with pytest.raises(ValueError, match=expected):
        build_small(tmp_path / "x", source=source, ids=None, queries=None, n_shards=4)


@pytest.mark.parametrize("minutes", [0, 1])
def test_tasks_say_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Every task declares the memory for its vectors, and a shard that learns for that too."""
    asked: dict[str, Needs] = {}

    class Noting(LocalRunner):
        """Notes what tasks need, and runs none that builds a shard."""

        def run(self, work: Work, tasks: Iterable[Task], needs: Needs) -> Iterator[Done]:
            """Run the tasks in order."""
            asked[work.__name__] = needs
            if work is tasks_of_shards.build_shard:
                raise KeyboardInterrupt
            yield from super().run(work, tasks, needs)

    monkeypatch.setattr(building, "LocalRunner", Noting)
    with pytest.raises(KeyboardInterrupt):
        build_small(tmp_path / "x", cpus=2, minutes=minutes)
    shard = VECTORS.nbytes // N_SHARDS
    assert asked["divide_part"].cpus == asked["neighbors_in_shard"].cpus == 1
    assert asked["divide_part"].n_bytes >= 2 * VECTORS.nbytes
    assert asked["divide_part"].n_sent == VECTORS.nbytes
    assert asked["neighbors_in_shard"].n_bytes >= 2 * shard
    assert asked["build_shard"].cpus == 2
    assert asked["build_shard"].n_bytes >= 4 * shard + minutes * 2**30


def test_a_workspace_that_was_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a build is cut off after its manifest, the next run removes the copy of the vectors."""

    def cut_off(_: Workspace) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "remove", cut_off)
        with pytest.raises(KeyboardInterrupt):
            build_small(tmp_path / "x", queries=None)
    assert (tmp_path / "x" / MANIFEST).exists()
    assert (tmp_path / "x" / WORK).exists()
    build_small(tmp_path / "x", queries=None)
    assert not (tmp_path / "x" / WORK).exists()


def test_a_url_is_as_good_as_a_directory(built_path: Path, tmp_path: Path) -> None:
    """Built into and opened by a URL of fsspec, with copies of files, an index answers the same."""
    path = tmp_path / "remote"
    np.save(tmp_path / "x.npy", VECTORS)
    index = build_small(f"file://{path}", source=str(tmp_path / "x.npy"), ids=None, queries=None)
    rows = {id_: row for row, id_ in enumerate(IDS.tolist())}
    expected = np.vectorize(rows.get)(exact(QUERIES))
    found = index.search(QUERIES, K, ef=len(VECTORS)).ids
    assert recall(found, expected) == 1.0
    assert index.shards[0]._copy.path != path / "shard-0000"
    again = ShardedIndex(f"file://{built_path}")
    np.testing.assert_array_equal(again.search(QUERIES, K, ef=len(VECTORS)).ids, exact(QUERIES))


def test_without_a_log_all_shards_are_asked(tmp_path: Path) -> None:
    """Without queries a recall is asked of every shard, and reached."""
    index = build_small(tmp_path / "x", queries=None, n_shards=2)
    found = index.search(QUERIES, K, recall=0.95)
    assert (found.n_asked == 2).all()
    assert recall(found.ids, exact(QUERIES)) >= 0.93
    with pytest.raises(ValueError, match="validation queries"):
        index.calibrate(0.9, K)


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_other_metrics_are_searched_alike(tmp_path: Path, metric: str) -> None:
    """Under cosine and ip, exhaustive answers are those of a single index."""
    index = build_small(tmp_path / "x", metric=metric, n_shards=2, queries=None)
    single = l2route.RoutingIndex.build(VECTORS, metric, ids=IDS)
    expected = single.search(QUERIES, K, ef=len(VECTORS))
    found = index.search(QUERIES, K, ef=len(VECTORS))
    assert recall(found.ids, expected.ids) > 0.999  # ties by rounding
    shutil.rmtree(tmp_path / "x")


@pytest.mark.parametrize(
    "options",
    [{"n_shards": 0}, {"recall": 1.5}, {"metric": "l7"}, {"engine": "dask"}, {"minutes": -1}],
    ids=str,
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Options out of range are errors before any work."""
    with pytest.raises(ValueError, match="expected"):
        build_small(tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()
