"""A vector store for LlamaIndex, in memory, persisted to a directory."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from l2route.extras import install
from l2route.index import RoutingIndex
from l2route.interop.archive import Record
from l2route.interop.documents import EF, Documents, Found, Passes

try:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.simple import DEFAULT_VECTOR_STORE, NAMESPACE_SEP
    from llama_index.core.vector_stores.types import (
        DEFAULT_PERSIST_DIR,
        DEFAULT_PERSIST_FNAME,
        BasePydanticVectorStore,
        FilterCondition,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import (
        build_metadata_filter_fn,
        metadata_dict_to_node,
        node_to_metadata_dict,
    )
except ImportError as error:
    raise ImportError(f"the vector store for LlamaIndex needs: {install('llama-index')}") from error

KIND = "llama-index"
PREFETCH_FACTOR = 4.0
"""Nearest nodes for each answer of which the mode mmr chooses."""


class L2RouteVectorStore(BasePydanticVectorStore):
    """Nodes and their embeddings in an index of l2route.

    Any number of threads may query, add and delete. A node that is added under an id that there is
    replaces the old one. Up to 1,000 nodes every query is exact. Similarities are larger for nearer
    nodes: the cosine, the inner product, or minus the squared Euclidean distance.

    Query modes are default and mmr. `query` takes the keywords `ef` and `recall` in place of the
    store's own, and for mmr `mmr_threshold` and `mmr_prefetch_factor`. Metadata filters may have
    all operators of LlamaIndex's `SimpleVectorStore`, and may be nested.

    Args:
        metric: cosine, ip or l2.
        ef: beam width of queries.
    """

    stores_text: bool = True
    metric: str = Field(default="cosine", description="cosine, ip or l2.")
    ef: int = Field(default=EF, ge=1, description="Beam width of queries.")
    _documents: Documents = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Start without nodes; pydantic calls it at the end of `__init__`."""
        super().model_post_init(context)
        self._documents = Documents(self.metric)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # which makes it anew, without nodes
        self._documents = state["__pydantic_private__"]["_documents"]

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, by which LlamaIndex stores it."""
        return "L2RouteVectorStore"

    @property
    def client(self) -> RoutingIndex | None:
        """The index, to learn from queries; None as long as there never was a node."""
        return self._documents.index

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with embeddings; if it fails, nothing is added.

        Args:
            nodes: the nodes.
            **kwargs: ignored: LlamaIndex passes what its users pass on.

        Returns:
            The ids of the nodes.
        """
        names = [node.node_id for node in nodes]
        vectors = [node.get_embedding() for node in nodes]
        records = [node_to_metadata_dict(node, flat_metadata=False) for node in nodes]
        self._documents.put(names, vectors, records)
        return names

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """`add` in another thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a source document; one that there is not does no harm."""
        every = self._documents.entries()
        self._documents.remove(each.name for each in every if each.record["doc_id"] == ref_doc_id)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete the nodes that have one of the ids and pass the filters; all without either."""
        passes, _ = _passes(node_ids, None, filters)
        every = self._documents.entries()
        self._documents.remove(each.name for each in every if passes is None or passes(*each))

    def clear(self) -> None:
        """Delete all nodes."""
        self._documents.clear()

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes that have one of the ids and pass the filters, without embeddings."""
        passes, _ = _passes(None, None, filters)
        entries = self._documents.entries() if node_ids is None else self._documents.get(node_ids)
        return [_node(each.record) for each in entries if passes is None or passes(*each)]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes nearest to a query's embedding.

        Args:
            query: with the mode default or mmr. Empty lists of node_ids and doc_ids do not
                restrict it: LlamaIndex's retriever passes them for stores that keep texts.
            **kwargs: ef, recall, mmr_threshold, mmr_prefetch_factor; others are ignored.
        """
        if query.query_embedding is None:
            raise ValueError("expected a query with an embedding, got none")
        is_mmr = query.mode == VectorStoreQueryMode.MMR
        if not is_mmr and query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"expected query mode default or mmr, got {query.mode}")
        k, recall = query.similarity_top_k, kwargs.get("recall")
        n_fetched = round(k * max(kwargs.get("mmr_prefetch_factor", PREFETCH_FACTOR), 1))
        passes, key = _passes(query.node_ids or None, query.doc_ids or None, query.filters)
        found = self._documents.search(
            query.query_embedding,
            n_fetched if is_mmr else k,
            passes=passes,
            key=key,
            ef=kwargs.get("ef", None if recall is not None else self.ef),
            recall=recall,
            with_vectors=is_mmr,
        )
        if not is_mmr:
            return _result(found, [_similarity(each.distance, self.metric) for each in found])
        return _diverse(query, found, kwargs.get("mmr_threshold", query.mmr_threshold))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query` in another thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def persist(
        self,
        persist_path: str = os.path.join(DEFAULT_PERSIST_DIR, DEFAULT_PERSIST_FNAME),
        fs: AbstractFileSystem | None = None,
    ) -> None:
        """Write nodes and index into the directory `persist_path`.

        After a crash it has what the last call wrote, or what this one did.

        Args:
            persist_path: the directory.
            fs: a local file system, or None.
        """
        _check_local(fs)
        self._documents.save(Path(persist_path), KIND)

    @classmethod
    def from_persist_path(
        cls, persist_path: str, fs: AbstractFileSystem | None = None, *, ef: int = EF
    ) -> L2RouteVectorStore:
        """Read a store that `persist` wrote.

        Args:
            persist_path: its directory.
            fs: a local file system, or None.
            ef: beam width of queries.
        """
        _check_local(fs)
        documents = Documents.load(Path(persist_path), KIND)
        store = cls(metric=documents.metric, ef=ef)
        store._documents = documents
        return store

    @classmethod
    def from_persist_dir(
        cls,
        persist_dir: str = DEFAULT_PERSIST_DIR,
        namespace: str = DEFAULT_VECTOR_STORE,
        fs: AbstractFileSystem | None = None,
        *,
        ef: int = EF,
    ) -> L2RouteVectorStore:
        """Read the store that `StorageContext.persist` wrote into its directory."""
        name = f"{namespace}{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"
        return cls.from_persist_path(str(Path(persist_dir) / name), fs, ef=ef)


def _check_local(fs: AbstractFileSystem | None) -> None:
    if fs is not None and not isinstance(fs, LocalFileSystem):
        raise ValueError(f"expected a local file system, got {type(fs).__name__}")


def _node(record: Record) -> BaseNode:
    return metadata_dict_to_node(record)


def _similarity(distance: float, metric: str) -> float:
    return 1.0 - distance if metric == "cosine" else -distance


def _result(found: list[Found], similarities: list[float]) -> VectorStoreQueryResult:
    return VectorStoreQueryResult(
        nodes=[_node(each.record) for each in found],
        similarities=similarities,
        ids=[each.name for each in found],
    )


def _diverse(
    query: VectorStoreQuery, found: list[Found], threshold: float | None
) -> VectorStoreQueryResult:
    """Answers near the query and far from each other, with LlamaIndex's scores for them."""
    by_name = {each.name: each for each in found}
    scores, names = get_top_k_mmr_embeddings(
        list(query.query_embedding or ()),
        [each.vector.tolist() for each in found],
        similarity_top_k=query.similarity_top_k,
        embedding_ids=list(by_name),
        mmr_threshold=threshold,
    )
    return _result([by_name[name] for name in names], scores)


def _passes(
    node_ids: list[str] | None, doc_ids: list[str] | None, filters: MetadataFilters | None
) -> tuple[Passes | None, str | None]:
    """What restricts a query as a function of an id and a record, and a text that says it."""
    if node_ids is None and doc_ids is None and not (filters and filters.filters):
        return None, None
    names = None if node_ids is None else frozenset(node_ids)
    sources = None if doc_ids is None else frozenset(doc_ids)
    matches = _matches(filters)

    def passes(name: str, record: Record) -> bool:
        if names is not None and name not in names:
            return False
        return (sources is None or record["doc_id"] in sources) and matches(record)

    described = None if filters is None else filters.model_dump(mode="json")
    return passes, json.dumps([node_ids, doc_ids, described])


def _matches(filters: MetadataFilters | None) -> Callable[[Record], bool]:
    """Metadata filters as a function of a record: LlamaIndex's own, and nested ones."""
    if filters is None or not filters.filters:
        return lambda _: True
    tests = []
    for each in filters.filters:
        if isinstance(each, MetadataFilters):
            tests.append(_matches(each))
        else:
            tests.append(_matches_one(MetadataFilters(filters=[each])))
    if filters.condition == FilterCondition.OR:
        return lambda record: any(test(record) for test in tests)
    if filters.condition == FilterCondition.NOT:
        return lambda record: not any(test(record) for test in tests)
    return lambda record: all(test(record) for test in tests)


def _matches_one(filters: MetadataFilters) -> Callable[[Record], bool]:
    def matches(record: Record) -> bool:
        return build_metadata_filter_fn(lambda _: record, filters)("")

    return matches
