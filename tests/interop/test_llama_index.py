"""The vector store for LlamaIndex: its own simple store as a twin, and a real index over it."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import (
    Document,
    MockEmbedding,
    StorageContext,
    VectorStoreIndex,
    load_index_from_storage,
)
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    SimpleVectorStore,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryMode

from l2route.interop.llama_index import L2RouteVectorStore

DIM = 5
WORDS = ["red", "Red", "blue", "redder", ""]


def nodes_of(n: int, seed: int = 0) -> list[BaseNode]:
    """Nodes n0, n1, … of three source documents, with metadata of all kinds."""
    rng = np.random.default_rng(seed)
    made: list[BaseNode] = []
    for i in range(n):
        metadata = {
            "number": int(rng.integers(5)),
            "score": float(rng.integers(10)) / 2,
            "word": str(rng.choice(WORDS)),
            "tags": rng.choice(WORDS, size=rng.integers(3)).tolist(),
            "maybe": None if rng.random() < 0.5 else "there",
        }
        if i % 3 == 0:
            del metadata["word"]
        source = RelatedNodeInfo(node_id=f"doc{i % 3}")
        node = TextNode(
            id_=f"n{i}",
            text=f"text {seed} {i}",
            metadata=metadata,
            relationships={NodeRelationship.SOURCE: source} if i % 4 else {},
            embedding=rng.normal(size=DIM).tolist(),
        )
        made.append(node)
    return made


def both(n: int) -> tuple[L2RouteVectorStore, SimpleVectorStore]:
    """Our store and LlamaIndex's with the same nodes."""
    ours, twin = L2RouteVectorStore(), SimpleVectorStore()
    for store in (ours, twin):
        store.add(nodes_of(n))
    return ours, twin


def check_alike(
    ours: L2RouteVectorStore, twin: SimpleVectorStore, query: VectorStoreQuery, **keywords: Any
) -> list[str]:
    """Check that both answer alike; return the ids."""
    found, expected = ours.query(query, **keywords), twin.query(query, **keywords)
    assert found.ids == expected.ids
    assert found.ids == [node.node_id for node in found.nodes or ()]
    np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-5)
    return found.ids


FILTERS = st.one_of(
    st.builds(
        MetadataFilter,
        key=st.sampled_from(["number", "score"]),
        value=st.one_of(st.integers(0, 5), st.floats(0, 5)),
        operator=st.sampled_from(
            [getattr(FilterOperator, name) for name in ("EQ", "NE", "GT", "GTE", "LT", "LTE")]
        ),
    ),
    st.builds(
        MetadataFilter,
        key=st.sampled_from(["word", "maybe", "unknown"]),
        value=st.sampled_from(["red", "there", "R", ""]),
        operator=st.sampled_from(
            [
                getattr(FilterOperator, name)
                for name in ("EQ", "NE", "TEXT_MATCH", "TEXT_MATCH_INSENSITIVE", "CONTAINS")
            ]
        ),
    ),
    st.builds(
        MetadataFilter,
        key=st.sampled_from(["word", "tags"]),
        value=st.lists(st.sampled_from(["red", "blue", "green"]), max_size=2),
        operator=st.sampled_from(
            [getattr(FilterOperator, name) for name in ("IN", "NIN", "ANY", "ALL")]
        ),
    ),
    st.builds(
        MetadataFilter,
        key=st.sampled_from(["tags", "maybe", "word", "unknown"]),
        value=st.none(),
        operator=st.just(FilterOperator.IS_EMPTY),
    ),
    st.builds(
        MetadataFilter,
        key=st.sampled_from(["doc_id", "ref_doc_id", "document_id"]),
        value=st.sampled_from(["doc0", "doc1", "None"]),
    ),
)


@settings(max_examples=120)
@given(
    filters=st.lists(FILTERS, max_size=3),
    condition=st.sampled_from([*FilterCondition, None]),
    k=st.integers(1, 40),
)
def test_filters_are_those_of_the_simple_store(
    filters: list[MetadataFilter], condition: FilterCondition | None, k: int
) -> None:
    """All operators and conditions pass the same nodes, in queries and in deletions."""
    ours, twin = both(30)
    wanted = MetadataFilters(filters=filters, condition=condition)
    query = VectorStoreQuery(np.ones(DIM).tolist(), similarity_top_k=k, filters=wanted)
    check_alike(ours, twin, query)
    every = VectorStoreQuery(np.ones(DIM).tolist(), similarity_top_k=40, filters=wanted)
    passed = check_alike(ours, twin, every)
    assert sorted(n.node_id for n in ours.get_nodes(filters=wanted)) == sorted(passed)
    for store in (ours, twin):
        store.delete_nodes([f"n{i}" for i in range(0, 40, 2)], wanted)
    everything = VectorStoreQuery(np.ones(DIM).tolist(), similarity_top_k=40)
    check_alike(ours, twin, everything)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.sampled_from(["doc0", "doc1", "None", "unknown"])),
        st.tuples(st.just("delete_nodes"), st.lists(st.sampled_from(["n1", "n2", "n30"]))),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=6,
)


@settings(max_examples=40)
@given(changes=CHANGES, mode=st.sampled_from(["default", "mmr"]), k=st.integers(1, 15))
def test_it_answers_as_the_simple_store(changes: list[Any], mode: str, k: int) -> None:
    """After any changes queries answer as those of `SimpleVectorStore`; mmr of all nodes."""
    ours, twin = both(12)
    for kind, value in changes:
        for store in (ours, twin):
            if kind == "add":
                assert store.add(nodes_of(10, value)) == [f"n{i}" for i in range(10)]
            elif kind == "clear":
                store.clear()
            else:
                getattr(store, kind)(value)
    for seed in range(3):
        query = VectorStoreQuery(
            np.random.default_rng(seed).normal(size=DIM).tolist(),
            similarity_top_k=k,
            mode=VectorStoreQueryMode(mode),
        )
        check_alike(ours, twin, query, mmr_threshold=0.3, mmr_prefetch_factor=20)
        query.node_ids = ["n3", "n1", "n7", "unknown"]
        check_alike(ours, twin, query, mmr_prefetch_factor=20)


def test_conditions_may_be_nested() -> None:
    """Filters within filters, which the simple store refuses."""
    ours, _ = both(30)
    by_number = [MetadataFilter(key="number", value=n) for n in (1, 2)]
    wanted = MetadataFilters(
        filters=[
            MetadataFilters(filters=by_number, condition=FilterCondition.OR),
            MetadataFilters(
                filters=[MetadataFilter(key="doc_id", value="doc1")], condition=FilterCondition.NOT
            ),
        ]
    )
    found = ours.get_nodes(filters=wanted)
    expected = [
        node.node_id
        for node in nodes_of(30)
        if node.metadata["number"] in (1, 2) and node.ref_doc_id != "doc1"
    ]
    assert [node.node_id for node in found] == expected
    assert len(expected) > 3


def test_source_documents_restrict_a_query() -> None:
    """doc_ids are those of source documents; empty lists restrict nothing."""
    ours, _ = both(30)
    query = VectorStoreQuery(np.ones(DIM).tolist(), similarity_top_k=30, doc_ids=["doc1"])
    found = ours.query(query).nodes or ()
    assert {node.ref_doc_id for node in found} == {"doc1"}
    query = VectorStoreQuery(np.ones(DIM).tolist(), similarity_top_k=30, doc_ids=[], node_ids=[])
    assert len(ours.query(query).ids or ()) == 30


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_other_metrics(metric: str) -> None:
    """Similarities are inner products, or minus squared distances."""
    nodes = nodes_of(20)
    store = L2RouteVectorStore(metric=metric)
    store.add(nodes)
    query = np.ones(DIM)
    vectors = np.array([node.get_embedding() for node in nodes])
    expected = vectors @ query if metric == "ip" else -((vectors - query) ** 2).sum(axis=1)
    found = store.query(VectorStoreQuery(query.tolist(), similarity_top_k=5))
    np.testing.assert_allclose(found.similarities, np.sort(expected)[::-1][:5], rtol=1e-5)


def test_wrong_queries_are_refused() -> None:
    """Modes that the store does not have, and queries without an embedding."""
    ours, _ = both(3)
    with pytest.raises(ValueError, match="expected query mode default or mmr, got"):
        ours.query(VectorStoreQuery([1.0] * DIM, mode=VectorStoreQueryMode.SVM))
    with pytest.raises(ValueError, match="expected a query with an embedding, got none"):
        ours.query(VectorStoreQuery(query_str="text"))
    with pytest.raises(ValueError, match="expected metric l2, ip, cosine, got 'hamming'"):
        L2RouteVectorStore(metric="hamming")
    with pytest.raises(ValueError, match="embedding not set"):
        ours.add([TextNode(text="without")])
    assert len(ours.get_nodes()) == 3


def test_nodes_come_back_whole() -> None:
    """Text, metadata, relationships and kind of a node survive, but not its embedding."""
    nodes: list[BaseNode] = [
        *nodes_of(2),
        IndexNode(id_="index", text="i", index_id="other", embedding=[1.0] * DIM),
        ImageNode(id_="image", text="p", image_url="u", embedding=[2.0] * DIM),
    ]
    store = L2RouteVectorStore()
    store.add(nodes)
    for node, found in zip(nodes, store.get_nodes([n.node_id for n in nodes]), strict=True):
        assert type(found) is type(node)
        assert found.model_dump(exclude={"embedding"}) == node.model_dump(exclude={"embedding"})


class LengthEmbedding(BaseEmbedding):
    """A model that embeds a text by its letters."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(text.lower().count(letter)) + 0.1 for letter in "aeiou"]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


TEXTS = ["banana", "beer tree", "igloo in Mississippi", "cuckoo", "a quiet aeon", "sky"]


def real_index(store: BasePydanticVectorStore, model: BaseEmbedding) -> VectorStoreIndex:
    """A real index over a store, of six documents."""
    documents = [Document(text=t, id_=f"doc{i}", metadata={"n": i}) for i, t in enumerate(TEXTS)]
    context = StorageContext.from_defaults(vector_store=store)
    return VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=model)


@pytest.mark.parametrize("mode", ["default", "mmr"])
def test_a_real_index_answers_as_over_the_simple_store(mode: str) -> None:
    """Retrievers of a `VectorStoreIndex`, with and without filters, insertions and deletions."""
    model = LengthEmbedding()
    indexes = [real_index(store, model) for store in (L2RouteVectorStore(), SimpleVectorStore())]
    for each in indexes:
        each.insert(Document(text="moon", id_="moon", metadata={"n": 9}))
        each.delete_ref_doc("doc1", delete_from_docstore=True)
        each.update_ref_doc(Document(text="ebbed", id_="doc2", metadata={"n": 2}))
    small = MetadataFilters(filters=[MetadataFilter(key="n", value=5, operator=FilterOperator.LT)])
    for filters in (None, small):
        for query in ("banana", "oo", "tree"):
            found = [
                [
                    (scored.node.get_content(), round(scored.score or 0, 4))
                    for scored in each.as_retriever(
                        similarity_top_k=3,
                        filters=filters,
                        vector_store_query_mode=mode,
                        vector_store_kwargs={"mmr_threshold": 0.7},  # at 0.5 scores are equal
                    ).retrieve(query)
                ]
                for each in indexes
            ]
            assert found[0] == found[1]
            assert len(found[0]) == 3


def test_a_mock_embedding_and_asyncio() -> None:
    """Equal embeddings, of which all are equally near; asynchronous methods."""
    store = L2RouteVectorStore()
    made = real_index(store, MockEmbedding(embed_dim=DIM))
    assert len(store.get_nodes()) == len(TEXTS)
    assert len(made.as_retriever(similarity_top_k=4).retrieve("x")) == 4

    async def change() -> int:
        await store.async_add(nodes_of(3))
        await store.adelete("doc0")
        await store.adelete_nodes(["n1"])
        nodes = await store.aget_nodes()
        found = await store.aquery(VectorStoreQuery([1.0] * DIM, similarity_top_k=99))
        assert sorted(found.ids or ()) == sorted(node.node_id for node in nodes)
        return len(nodes)

    assert asyncio.run(change()) == len(TEXTS) - 1 + 2


def test_a_persisted_store_is_read_again(tmp_path: Path) -> None:
    """A storage context with our store is written and read; so is a store by its path."""
    model = LengthEmbedding()
    made = real_index(L2RouteVectorStore(metric="l2"), model)
    expected = [scored.node_id for scored in made.as_retriever().retrieve("banana")]
    made.storage_context.persist(str(tmp_path))
    store = L2RouteVectorStore.from_persist_dir(str(tmp_path), ef=77)
    assert (store.metric, store.ef) == ("l2", 77)
    context = StorageContext.from_defaults(persist_dir=str(tmp_path), vector_store=store)
    again = load_index_from_storage(context, embed_model=model)
    assert [s.node_id for s in again.as_retriever().retrieve("banana")] == expected
    alone = VectorStoreIndex.from_vector_store(store, embed_model=model)
    assert [s.node_id for s in alone.as_retriever().retrieve("banana")] == expected
    store.add(nodes_of(4))
    path = str(tmp_path / "other" / "store")
    store.persist(path, fs=LocalFileSystem())
    assert len(L2RouteVectorStore.from_persist_path(path).get_nodes()) == len(TEXTS) + 4
    with pytest.raises(ValueError, match="expected a local file system, got MemoryFileSystem"):
        store.persist(path, fs=MemoryFileSystem())
    with pytest.raises(FileNotFoundError):
        L2RouteVectorStore.from_persist_path(str(tmp_path / "nothing"))


def test_it_is_described_by_a_dict() -> None:
    """`to_dict` and `from_dict` keep the options of a store; not its nodes, as its docs say."""
    store = L2RouteVectorStore(metric="ip", ef=50)
    again = L2RouteVectorStore.from_dict(store.to_dict())
    assert (again.metric, again.ef, again.get_nodes()) == ("ip", 50, [])
    assert store.class_name() == "L2RouteVectorStore"
    assert store.client is None
    assert store  # a storage context replaces a store that is false


def test_a_pickled_store_is_whole() -> None:
    """A store may be sent to another process."""
    ours, _ = both(10)
    again = pickle.loads(pickle.dumps(ours))
    query = VectorStoreQuery([1.0] * DIM, similarity_top_k=4)
    assert again.query(query) == ours.query(query)
    assert again.metric == ours.metric


def test_without_llama_index_the_error_names_the_extra() -> None:
    """The import fails with the command that installs what is missing."""
    code = "import sys; sys.modules['llama_index'] = None; import l2route.interop.llama_index"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = 'the vector store for LlamaIndex needs: pip install "l2route[llama-index]"'
    assert f"ImportError: {message}" in run.stderr
