"""Laws of exports to faiss: they answer like the index."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from l2route import RoutingIndex, from_faiss, to_faiss
from l2route.cli.app import main
from l2route.data.public import demo_words
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.evaluation.judge import Judge
from l2route.graph.build import GraphKind
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import COMPRESSIONS, Compression
from l2route.search.space import RoutingSpace
from l2route.training.options import LearnOptions
from l2route.training.train import train

WORDS = demo_words(n_base=2_000, n_learn=1_500, n_query=300).dataset
METRICS: tuple[Metric, ...] = ("l2", "cosine", "ip")
GRAPHS: tuple[GraphKind, ...] = ("nsw", "hnsw")


def learned(
    metric: Metric, graph: GraphKind = "nsw", dim: int | None = None
) -> tuple[RoutingIndex, RoutingSpace]:
    """An index with a routing space that differs from the original one, as after learning."""
    index = RoutingIndex.build(
        WORDS.base, metric, graph=graph, degree=16, ef_construction=60, entry="medoid"
    )
    rng = np.random.default_rng(0)
    rows = index.base.rows + 0.05 * rng.normal(size=index.base.rows.shape).astype(np.float32)
    matrix = None
    if dim is not None:
        matrix = np.linalg.qr(rng.normal(size=(index.dim, index.dim)))[0][:dim].astype(np.float32)
        rows = np.zeros((len(rows), -(-dim // 16) * 16), dtype=np.float32)
        rows[:, :dim] = index.base.vectors() @ matrix.T
    rows[:, dim or index.dim :] = 0
    bias = -0.5 * (rows**2).sum(axis=1) if metric == "l2" else 0.1 * rng.normal(size=len(rows))
    space = RoutingSpace(
        rows, dim or index.dim, "ip", matrix, bias.astype(np.float32), "learned", 30
    )
    return RoutingIndex(index.base, index.graph, [space]), space


def answers(index: RoutingIndex, ef: int, rerank: int | None = None) -> NDArray[np.int64]:
    """Ids found by l2route [n_queries, 10]."""
    return index.search(WORDS.query, 10, ef=ef, rerank=rerank).ids


def recalls_of(metric: Metric, *answers: NDArray[np.int64]) -> list[float]:
    """Recall@10 of several answers."""
    judge = Judge(replace(WORDS, metric=metric), 10)
    return [judge.recall(ids) for ids in answers]


@pytest.mark.parametrize("dim", [None, 20])
@pytest.mark.parametrize("metric", METRICS)
def test_a_flat_graph_gives_the_same_answers(metric: Metric, dim: int | None) -> None:
    """Without upper layers faiss returns the same ids, for every metric, dimension and beam."""
    index, _ = learned(metric, dim=dim)
    for ef, rerank in ((10, None), (30, 30), (100, 30), (100, None)):
        _, ids = to_faiss(index, ef=ef, rerank=rerank).search(WORDS.query, 10)
        assert (ids == answers(index, ef, rerank)).mean() > 0.999


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_beam_and_rerank_are_set_by_faiss(metric: Metric, labelled: bool) -> None:
    """Faiss sets beam and rerank by name, through every wrapper of the index."""
    index, _ = learned(metric)
    if labelled:
        index.renumber()
    stock = to_faiss(index, ef=20, rerank=10)
    assert (stock.search(WORDS.query, 10)[1] == answers(index, 20, 10)).mean() > 0.999
    faiss.ParameterSpace().set_index_parameters(stock, "efSearch=50,k_factor_rf=3")
    assert (stock.search(WORDS.query, 10)[1] == answers(index, 50, 30)).mean() > 0.999


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("space", ["original", "learned"])
def test_hnsw_has_the_same_recall(metric: Metric, space: str) -> None:
    """With upper layers the recall is the same, within 0.001, at the same efSearch."""
    index, _ = learned(metric, "hnsw")
    assert index.graph.upper
    for rerank in (60, None):
        _, theirs = to_faiss(index, space=space, ef=120, rerank=rerank).search(WORDS.query, 10)
        ours = index.search(WORDS.query, 10, ef=120, rerank=rerank, space=space).ids
        recalls = recalls_of(metric, theirs, ours)
        assert recalls[0] == pytest.approx(recalls[1], abs=0.001)


def test_answers_are_true_distances() -> None:
    """Under l2 the distances of faiss are those of the original vectors."""
    index, _ = learned("l2")
    distances, ids = to_faiss(index).search(WORDS.query, 5)
    true = ((WORDS.query[:, None] - WORDS.base[ids]) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances, true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_codes_leave_as_what_they_stand_for(metric: Metric, compression: Compression) -> None:
    """The export of a compressed index has its recall and nearly all its answers."""
    index, _ = learned(metric, dim=40)
    index.compress(compression, vectors="float16")
    _, theirs = to_faiss(index, ef=60, rerank=30).search(WORDS.query, 10)
    ours = answers(index, 60, 30)
    recalls = recalls_of(metric, theirs, ours)
    assert recalls[0] == pytest.approx(recalls[1], abs=0.003)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(theirs, ours, strict=True)]) > 9.9


@pytest.mark.parametrize("graph", GRAPHS)
def test_several_entries_leave_too(graph: GraphKind) -> None:
    """Several entries become an upper layer; the layers below stay, and so does the recall."""
    built, space = learned("l2", graph)
    upper = built.graph.upper[-1:]
    among = upper[0].vertices if upper else np.arange(2_000, dtype=np.int32)
    several = replace(built.graph, entries=among[:: len(among) // 30], upper=upper)
    index = RoutingIndex(built.base, several, [space])
    stock = to_faiss(index, ef=60, rerank=30)
    steered = faiss.downcast_index(stock.base_index)
    assert faiss.downcast_index(steered.index).hnsw.max_level == len(upper) + 1
    _, theirs = stock.search(WORDS.query, 10)
    recalls = recalls_of("l2", theirs, answers(index, 60, 30))
    assert recalls[0] == pytest.approx(recalls[1], abs=0.002)


def test_one_vector_leaves_too() -> None:
    """An index of one vector can be exported."""
    stock = to_faiss(RoutingIndex.build(WORDS.base[:1]))
    assert stock.search(WORDS.query[:2], 1)[1].tolist() == [[0], [0]]


def test_labels_are_kept() -> None:
    """Answers of the export have the labels of the index."""
    plain, space = learned("l2")
    labels = np.arange(len(plain))[::-1].astype(np.int64) * 7
    index = RoutingIndex(plain.base, plain.graph, [space], labels)
    _, ids = to_faiss(index, ef=60).search(WORDS.query, 10)
    assert (ids == answers(index, 60)).mean() > 0.999


@pytest.mark.parametrize("space", ["original", "original-int8"])
def test_an_index_that_has_lived_leaves_too(space: str) -> None:
    """Ids of vectors that were added are in the export, deleted ones are not, at its recall."""
    index = RoutingIndex.build(WORDS.base[:1500], degree=16, ids=np.arange(1500) * 2)
    index.add(WORDS.base[1500:1990], np.arange(490) * 2 + 1)
    index.delete(index.ids[100:900])
    updated, new = index.ids[:50], WORDS.base[100:150] * 1.5
    index.update(updated, new)
    index.compress("int8")
    index.add(WORDS.base[1990:])
    exported = to_faiss(index, space=space, ef=256)  # what is updated lies far outside
    assert exported.ntotal == len(index)
    found = exported.search(WORDS.query, 10)[1]
    assert np.isin(found, index.ids).all()
    truth = index.ids[exact_neighbors(index.vectors(index.ids), WORDS.query, 10, "l2").ids]
    recall = np.mean([np.isin(*pair).mean() for pair in zip(found, truth, strict=True)])
    assert recall > 0.97
    assert exported.search(new, 1)[1].ravel().tolist() == updated.tolist()


def test_pca_spaces_leave_too() -> None:
    """A PCA space, which is scored by l2, can be exported."""
    index = RoutingIndex.build(
        WORDS.base, degree=16, ef_construction=60, entry="medoid", pca_dim=12
    )
    _, ids = to_faiss(index, ef=80, rerank=50).search(WORDS.query, 10)
    assert (ids == answers(index, 80, 50)).mean() > 0.999


def test_a_faiss_index_learns_and_goes_back() -> None:
    """Importing from faiss, learning and exporting raises the recall@1 of faiss."""
    words = demo_words(n_base=5_000, n_learn=20_000, n_query=500).dataset
    hnsw = faiss.IndexHNSWFlat(words.base.shape[1], 8)
    hnsw.add(words.base)
    index = from_faiss(hnsw)
    assert index.learn(words.learn, budget=128, rerank=8, steps=1000).is_better
    stock = to_faiss(index, ef=8)
    assert (stock.ntotal, stock.d) == (hnsw.ntotal, hnsw.d)
    hnsw.hnsw.efSearch = 8
    stock.k_factor = 8.0  # for k = 1
    truth = exact_neighbors(words.base, words.query, 1).ids
    plain, steered = ((each.search(words.query, 1)[1] == truth).mean() for each in (hnsw, stock))
    assert steered > plain + 0.01


def test_stock_faiss_reads_it(tmp_path: Path) -> None:
    """A file written by the command is searched in a process without l2route."""
    index, _ = learned("cosine", dim=20)
    index.save(tmp_path / "index.l2r")
    np.save(tmp_path / "query.npy", WORDS.query)
    files = (str(tmp_path / "index.l2r"), "-o", str(tmp_path / "out.faiss"))
    call = (sys.executable, "-m", "l2route", "export", "faiss", *files, "--ef", "40")
    subprocess.run(call, check=True, capture_output=True)
    script = (
        "import sys, faiss, numpy as np\n"
        f"index = faiss.read_index({str(tmp_path / 'out.faiss')!r})\n"
        f"query = np.load({str(tmp_path / 'query.npy')!r})\n"
        f"np.save({str(tmp_path / 'ids.npy')!r}, index.search(query, 10)[1])\n"
        "assert not any(name.startswith('l2route') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (np.load(tmp_path / "ids.npy") == answers(index, 40)).mean() > 0.999


def with_common_part(index: RoutingIndex, size: float) -> RoutingIndex:
    """An index whose routing vectors and biases share a large constant part.

    It changes no rank, because the first dimension of all queries is 1.
    """
    vectors = index.base.vectors().copy()
    vectors[:, 0] = 1.0
    base = BaseVectors.of(vectors, index.base.metric)
    rows = np.ascontiguousarray(base.rows.copy())
    rows[:, 0] += np.float32(size)
    bias = -0.5 * (base.rows**2).sum(axis=1) - np.float32(size)
    space = RoutingSpace(rows, base.dim, "ip", None, bias.astype(np.float32), "learned", 30)
    return RoutingIndex(base, index.graph, [space])


@pytest.mark.parametrize("size", [0.0, 300.0, 3000.0, -3000.0])
def test_what_all_vertices_have_in_common_costs_nothing(size: float) -> None:
    """A constant part of routing vectors, however large, does not change the answers."""
    index = with_common_part(learned("l2")[0], size)
    queries = WORDS.query.copy()
    queries[:, 0] = 1.0
    _, theirs = to_faiss(index, ef=40).search(queries, 10)
    ours = index.search(queries, 10, ef=40).ids
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(theirs, ours, strict=True)]) > 0.99


def steered_to_one_vertex(validation: bool) -> RoutingIndex:
    """An index that cannot be exported: one huge bias leaves float32 no digits for the others."""
    index, space = learned("l2")
    assert space.bias is not None
    bias = space.bias.copy()
    bias[7] = 1e10
    index = RoutingIndex(index.base, index.graph, [replace(space, bias=bias)])
    if validation:
        index.validate_with(WORDS.learn[:200])
    return index


@pytest.mark.parametrize("validation", [False, True])
def test_an_export_that_answers_otherwise_is_refused(validation: bool) -> None:
    """An export with a lower recall is refused; the error names both recalls."""
    index = steered_to_one_vertex(validation)
    n, kind = (200, "validation queries") if validation else (500, "points between linked vertices")
    with pytest.raises(ValueError, match=rf"- 0.03 on {n} {kind} at ef = 64, got 0\.\d+"):
        to_faiss(index)
    recalls = recalls_of("l2", answers(index, 64), answers(learned("l2")[0], 64))
    assert recalls[0] == pytest.approx(recalls[1], abs=0.01)  # in l2route its recall is normal


def test_a_refused_export_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints why an export is refused, fails, and writes no file."""
    steered_to_one_vertex(validation=False).save(tmp_path / "index.l2r")
    out = tmp_path / "out.faiss"
    call = ["l2route", "export", "faiss", str(tmp_path / "index.l2r"), "-o", str(out)]
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code
    assert "with a recall@10 of" in capsys.readouterr().err
    assert not out.exists()


def learned_where_little_differs(metric: Metric, dim: int | None) -> RoutingIndex:
    """An index that was trained on vectors with a nearly constant dimension."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=(3_000, 48)).astype(np.float32)
    drawn[:, 0] = 1 + 1e-6 * drawn[:, 0]
    index = RoutingIndex.build(drawn[:2_000], metric, degree=12, ef_construction=60, entry="medoid")
    options = LearnOptions(budget=128, rerank=10, steps=60, dim=dim)
    space, _ = train(index.graph, index.base, drawn[2_000:], options)
    return RoutingIndex(index.base, index.graph, [space])


@pytest.mark.parametrize("dim", [None, 16])
@pytest.mark.parametrize("metric", METRICS)
def test_what_is_learned_where_little_differs_is_exported(metric: Metric, dim: int | None) -> None:
    """A nearly constant dimension does not change the answers of the export."""
    index = learned_where_little_differs(metric, dim)
    queries = np.random.default_rng(2).normal(size=(300, 48)).astype(np.float32)
    queries[:, 0] = 1.0
    _, theirs = to_faiss(index, ef=40).search(queries, 10)
    assert (theirs == index.search(queries, 10, ef=40).ids).mean() > 0.99


def l2_walks_for_inner_products() -> RoutingIndex:
    """An index for ip with a space scored by l2, which faiss cannot refine."""
    base = BaseVectors.of(WORDS.base, "ip")
    graph = Graph(learned("ip")[0].graph.neighbors, np.zeros(1, np.int32))
    return RoutingIndex(base, graph, [RoutingSpace(base.rows.copy(), base.dim, "l2", name="odd")])


def test_what_faiss_cannot_say_is_refused() -> None:
    """A space that faiss cannot represent, and a wrong rerank, are refused."""
    with pytest.raises(ValueError, match="by inner product, got l2 for metric ip"):
        to_faiss(l2_walks_for_inner_products())
    for rerank in (0, 65):
        with pytest.raises(ValueError, match=f"expected rerank from 1 to ef = 64, got {rerank}"):
            to_faiss(learned("l2")[0], rerank=rerank)
