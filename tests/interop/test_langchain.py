"""The vector store for LangChain: its standard suite, its own store as a twin, and its tools."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from l2route.interop.langchain import L2RouteVectorStore

EMBEDDING = DeterministicFakeEmbedding(size=8)


class TestStandardSuite(VectorStoreIntegrationTests):
    """LangChain's standard suite for vector stores, with and without asyncio."""

    @pytest.fixture(params=["cosine", "ip", "l2"])
    def vectorstore(self, request: pytest.FixtureRequest) -> VectorStore:
        """An empty store of each metric."""
        return L2RouteVectorStore(self.get_embeddings(), metric=request.param)


class AsyncOnly(Embeddings):
    """A model of which only the asynchronous methods work."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Fail."""
        raise AssertionError("expected a call of the asynchronous method")

    def embed_query(self, text: str) -> list[float]:
        """Fail."""
        raise AssertionError("expected a call of the asynchronous method")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embeddings of texts."""
        return EMBEDDING.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """The embedding of a query."""
        return EMBEDDING.embed_query(text)


def cities(metric: str = "cosine") -> L2RouteVectorStore:
    """Five documents with metadata."""
    texts = ["Oslo", "Rome", "Lima", "Bonn", "Cairo"]
    metadatas = [{"n": i, "even": i % 2 == 0, "tags": ["x", i]} for i in range(5)]
    return L2RouteVectorStore.from_texts(
        texts, EMBEDDING, metadatas, ids=list("abcde"), metric=metric
    )


def size(store: L2RouteVectorStore) -> int:
    """Number of documents."""
    return len(store.similarity_search("", 1000))


def same(found: list[Document], expected: list[Document]) -> bool:
    """Whether documents agree, ids included."""
    return [d.model_dump() for d in found] == [d.model_dump() for d in expected]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 15), min_size=1, max_size=8)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 15), max_size=5)),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=40)
@given(operations=OPERATIONS, k=st.integers(1, 20), query=st.text(max_size=4))
def test_it_answers_as_the_store_of_langchain(
    operations: list[tuple[str, list[int]]], k: int, query: str
) -> None:
    """After any changes all searches answer as those of `InMemoryVectorStore`."""
    ours, twin = L2RouteVectorStore(EMBEDDING), InMemoryVectorStore(EMBEDDING)
    for at, (kind, numbers) in enumerate(operations):
        for store in (ours, twin):
            if kind == "delete":
                store.delete([str(n) for n in numbers])
            else:
                documents = [
                    Document(f"{at}.{place}", id=str(n), metadata={"even": n % 2 == 0, "n": n})
                    for place, n in enumerate(numbers)
                ]
                assert store.add_documents(documents) == [str(n) for n in numbers]
    every = [str(n) for n in range(16)]
    assert same(ours.get_by_ids(every), twin.get_by_ids(every))

    def even(document: Document) -> bool:
        return bool(document.metadata["even"])

    for where, as_function in ((None, None), (even, even), ({"even": True}, even)):
        found = ours.similarity_search_with_score(query, k, filter=where)
        expected = twin.similarity_search_with_score(query, k, filter=as_function)
        assert same([d for d, _ in found], [d for d, _ in expected])
        np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], atol=1e-5)
        diverse = ours.max_marginal_relevance_search(query, k, 10, filter=where)
        expected_diverse = twin.max_marginal_relevance_search(query, k, 10, filter=as_function)
        assert same(diverse, expected_diverse)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_scores(metric: str) -> None:
    """Scores fall from answer to answer; relevance is in [0, 1], and 1 for the text itself."""
    store = cities(metric)
    vectors = np.array(EMBEDDING.embed_documents(["Oslo", "Rome", "Lima", "Bonn", "Cairo"]))
    query = np.array(EMBEDDING.embed_query("Rome"))
    if metric == "l2":
        expected = -np.linalg.norm(vectors - query, axis=1)
    else:
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        expected = vectors @ query / (1 if metric == "ip" else lengths)
    scores = [score for _, score in store.similarity_search_with_score("Rome", 5)]
    np.testing.assert_allclose(scores, np.sort(expected)[::-1], rtol=1e-5, atol=1e-5)
    relevances = store.similarity_search_with_relevance_scores("Rome", 5)
    assert relevances[0][1] == pytest.approx(1)
    assert all(0 <= relevance <= 1 for _, relevance in relevances)
    near = store.similarity_search_with_relevance_scores("Rome", 5, score_threshold=0.99)
    assert "b" in [document.id for document, _ in near]


def test_filters() -> None:
    """A dict is equality of all its values; a function sees documents; both find all k."""
    store = cities()

    def found(where: Any) -> str:
        return "".join(sorted(d.id or "" for d in store.similarity_search("x", 5, filter=where)))

    assert found({"even": True}) == "ace"
    assert found({"even": True, "n": 2}) == "c"
    assert found({"tags": ["x", 3]}) == "d"
    assert found({"tags": ("x", 3)}) == ""  # not that of the list, although it was asked before
    assert found({}) == "abcde"
    assert found({"unknown": None}) == ""
    assert found({"n": 7}) == ""
    assert found(lambda document: document.page_content > "C" and document.id != "b") == "ace"
    store.add_documents([Document("Quito", id="f", metadata={"even": True})])
    assert found({"even": True}) == "acef"
    store.delete(["a"])
    assert found({"even": True}) == "cef"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"n": {"$gt": 3}}, r"equal to, or a function for anything else, got {'n': {'\$gt': 3}}"),
        ({"$or": []}, r"equal to, or a function"),
        ("n = 3", "expected a filter of values in a dict, or a function, got 'n = 3'"),
    ],
)
def test_filters_of_other_stores_are_refused(where: Any, message: str) -> None:
    """Operators are an error, not a filter that nothing passes."""
    with pytest.raises((ValueError, TypeError), match=message):
        cities().similarity_search("x", filter=where)


def test_unknown_keywords_are_refused() -> None:
    """A keyword that is spelt wrongly does not go unnoticed."""
    with pytest.raises(TypeError, match="filters"):
        cities().similarity_search("x", filters={"n": 1})
    with pytest.raises(TypeError, match="expected filter, ef and recall, got filters"):
        cities().max_marginal_relevance_search("x", filters={"n": 1})


def test_documents_are_copies() -> None:
    """What a user does to metadata does not change the store."""
    given: dict[str, Any] = {"tags": ["a"]}
    store = L2RouteVectorStore(EMBEDDING)
    store.add_texts(["text"], [given], ids=["1"])
    given["tags"].append("b")
    (found,) = store.similarity_search("text")
    found.metadata["tags"].append("c")
    (again,) = store.get_by_ids(["1"])
    assert again.metadata == {"tags": ["a"]}


def test_texts_without_ids_get_some() -> None:
    """New ids are distinct; of documents with and without ids each keeps its own."""
    store = L2RouteVectorStore(EMBEDDING)
    assert len(set(store.add_texts(iter(["a", "a", "b"])))) == 3
    ids = store.add_documents([Document("c", id="c"), Document("d")])
    assert ids[0] == "c"
    assert size(store) == 5
    assert {d.page_content for d in store.get_by_ids(ids)} == {"c", "d"}
    assert store.add_texts([]) == []


def test_lists_of_other_lengths_are_refused() -> None:
    """Before anything is embedded."""
    store = L2RouteVectorStore(AsyncOnly())
    with pytest.raises(ValueError, match="expected 2 metadatas, one per text, got 1"):
        store.add_texts(["a", "b"], [{}])
    with pytest.raises(ValueError, match="expected 2 ids, one per text, got 3"):
        store.add_texts(["a", "b"], ids=["1", "2", "3"])


def test_delete_without_ids_deletes_all() -> None:
    """As `VectorStore.delete` says; an empty list deletes nothing."""
    store = cities()
    store.delete([])
    assert size(store) == 5
    store.delete()
    assert size(store) == 0
    assert store  # libraries replace a store that is false
    assert store.similarity_search("Rome") == []


async def test_models_are_awaited() -> None:
    """All asynchronous methods use the model's asynchronous ones."""
    store = await L2RouteVectorStore.afrom_texts(["a", "b"], AsyncOnly(), [{"n": 1}, {"n": 2}])
    await store.aadd_documents([Document("c", id="3", metadata={"n": 3})])
    (found,) = await store.asimilarity_search("c", 1)
    assert found.id == "3"
    ((found, score),) = await store.asimilarity_search_with_score("c", 1, filter={"n": 3})
    assert score == pytest.approx(1)
    assert len(await store.amax_marginal_relevance_search("a", 2)) == 2
    ((found, relevance),) = await store.asimilarity_search_with_relevance_scores("c", 1)
    assert (found.id, relevance) == ("3", pytest.approx(1))
    many = await asyncio.gather(*(store.asimilarity_search(text, 1) for text in 30 * ["a", "b"]))
    assert [each[0].page_content for each in many] == 30 * ["a", "b"]
    assert await store.adelete(["3"])
    assert await store.aget_by_ids(["3"]) == []


def test_a_saved_store_is_read_again(tmp_path: Path) -> None:
    """Documents, scores and metric survive; saves after changes too."""
    for metric in ("cosine", "ip", "l2"):
        store, path = cities(metric), tmp_path / metric
        store.save_local(path)
        store.delete(["a"])
        store.add_texts(["Rom"], [{"n": None}], ids=["b"])
        store.save_local(str(path))
        again = L2RouteVectorStore.load_local(path, EMBEDDING)
        assert again.similarity_search_with_score("x", 9) == store.similarity_search_with_score(
            "x", 9
        )
        assert same(again.get_by_ids(list("abcde")), store.get_by_ids(list("abcde")))


def test_retrievers() -> None:
    """Every kind of retriever answers, alone and in a chain."""
    store = cities()
    kinds: dict[str, dict[str, Any]] = {
        "similarity": {"k": 2, "filter": {"even": True}},
        "mmr": {"k": 2, "fetch_k": 4, "ef": 50},
        "similarity_score_threshold": {"k": 2, "score_threshold": 0.9},
    }
    for kind, keywords in kinds.items():
        retriever = store.as_retriever(search_type=kind, search_kwargs=keywords)
        found = retriever.invoke("Oslo")
        assert found[0].id == "a"
        assert len(found) == (1 if kind == "similarity_score_threshold" else 2)
        assert asyncio.run(retriever.ainvoke("Oslo")) == found
    chain = store.as_retriever() | RunnableLambda(lambda found: found[0].page_content)
    assert chain.invoke("Cairo") == "Cairo"


def test_the_indexing_of_langchain_keeps_it_in_step() -> None:
    """`index` adds new documents, skips those that it knows, and deletes the others."""
    store, manager = L2RouteVectorStore(EMBEDDING), InMemoryRecordManager("test")
    manager.create_schema()

    def run(texts: str) -> dict[str, int]:
        documents = [Document(text, metadata={"source": text}) for text in texts]
        options: dict[str, Any] = {"cleanup": "full", "source_id_key": "source", "batch_size": 2}
        return dict(index(documents, manager, store, key_encoder="sha256", **options))

    assert run("abcd")["num_added"] == 4
    result = run("bcde")
    assert (result["num_added"], result["num_skipped"], result["num_deleted"]) == (1, 3, 1)
    assert {d.page_content for d in store.similarity_search("x", 9)} == set("bcde")


def test_a_recall_is_served() -> None:
    """The index of a store may be given queries; searches then take a recall."""
    store = L2RouteVectorStore(EMBEDDING)
    assert store.index is None
    store.add_texts([str(i) for i in range(300)])
    assert store.index is not None
    store.index.validate_with(EMBEDDING.embed_documents([f"q{i}" for i in range(50)]))
    assert len(store.similarity_search("7", 3, recall=0.9)) == 3
    assert store.similarity_search("7", 1, recall=0.9)[0].page_content == "7"


def test_without_langchain_the_error_names_the_extra() -> None:
    """The import fails with the command that installs what is missing."""
    code = "import sys; sys.modules['langchain_core'] = None; import l2route.interop.langchain"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = 'ImportError: the vector store for LangChain needs: pip install "l2route[langchain]"'
    assert message in run.stderr


def test_the_package_does_not_import_it() -> None:
    """`import l2route` imports none of the libraries that adapters are for."""
    code = """
import sys, l2route, l2route.cli.app
print(sorted({'langchain_core', 'llama_index', 'sklearn', 'scipy'} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
