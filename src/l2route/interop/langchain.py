"""A vector store for LangChain, in memory, saved to a directory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from l2route.extras import install
from l2route.index import RoutingIndex
from l2route.interop.archive import Record
from l2route.interop.documents import Documents, Found, Passes

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError as error:
    raise ImportError(f"the vector store for LangChain needs: {install('langchain')}") from error

MetadataFilter = dict[str, Any] | Callable[[Document], bool]
"""Values that metadata must have, or a function that says whether a document may be an answer."""
KIND = "langchain"
_PLAIN = (str, int, float, bool, type(None))


class L2RouteVectorStore(VectorStore):
    """Documents and their embeddings in an index of l2route.

    Any number of threads may search, add and delete. A document that is added under an id that
    there is replaces the old one. Up to 1,000 documents every search is exact.

    A score is larger for nearer documents: the cosine, the inner product, or minus the Euclidean
    distance. A relevance score is the cosine or the inner product, and 1 − distance/√2 for l2, cut
    to [0, 1]: those of l2 and ip are meant for embeddings of unit length.

    All searches take the keywords `filter`, `ef` and `recall`:

    * filter: a dict of values that metadata must have, or a function that is asked about each
      document. What passes a dict is remembered until documents change.
    * ef: beam width, 128 by default: larger misses fewer and takes longer.
    * recall: share of the true neighbours to find, in place of ef; `index.validate_with` must have
      got queries before, or `index.learn`.

    Args:
        embedding: the model that embeds texts and queries.
        metric: cosine, ip or l2.
    """

    def __init__(self, embedding: Embeddings, *, metric: str = "cosine") -> None:
        self._embedding = embedding
        self._documents = Documents(metric)

    @property
    def embeddings(self) -> Embeddings:
        """The model that embeds texts and queries."""
        return self._embedding

    @property
    def index(self) -> RoutingIndex | None:
        """The index, to learn from queries; None as long as there never was a document."""
        return self._documents.index

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts and add them; if it fails, nothing is added.

        Args:
            texts: the texts.
            metadatas: a dict for each text.
            ids: an id for each text; new ones where it is None.
            **kwargs: ignored: LangChain's indexing passes a batch size.

        Returns:
            The ids of the texts.
        """
        contents, names, records = _checked(texts, metadatas, ids)
        self._documents.put(names, self._embedding.embed_documents(contents), records)
        return names

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts by the model's asynchronous method and add them, as `add_texts` does."""
        contents, names, records = _checked(texts, metadatas, ids)
        vectors = await self._embedding.aembed_documents(contents)
        await run_in_executor(None, self._documents.put, names, vectors, records)
        return names

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by their ids, all of them for None; ids that there are not do no harm.

        Returns:
            True.
        """
        if ids is None:
            self._documents.clear()
        else:
            self._documents.remove(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, in their order, without those that there are not."""
        return [_document(*entry) for entry in self._documents.get(ids)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """The k documents nearest to a query; keywords as described for the class."""
        return self.similarity_search_by_vector(self._embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """`similarity_search` with the model's asynchronous method."""
        return await self.asimilarity_search_by_vector(
            await self._embedding.aembed_query(query), k, **kwargs
        )

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """The k documents nearest to an embedding."""
        found = self.similarity_search_with_score_by_vector(embedding, k, **kwargs)
        return [document for document, _ in found]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """The k documents nearest to a query, with their scores."""
        vector = self._embedding.embed_query(query)
        return self.similarity_search_with_score_by_vector(vector, k, **kwargs)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score` with the model's asynchronous method."""
        vector = await self._embedding.aembed_query(query)
        return await run_in_executor(
            None, self.similarity_search_with_score_by_vector, vector, k, **kwargs
        )

    def similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: MetadataFilter | None = None,  # noqa: A002  # LangChain's name
        ef: int | None = None,
        recall: float | None = None,
    ) -> list[tuple[Document, float]]:
        """The k documents nearest to an embedding, with their scores."""
        found = self._search(embedding, k, filter, ef, recall)
        metric = self._documents.metric
        return [(_document(*each[:2]), _score(each.distance, metric)) for each in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """`max_marginal_relevance_search_by_vector` for the embedding of a query."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **kwargs
        )

    async def amax_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """`max_marginal_relevance_search` with the model's asynchronous method."""
        vector = await self._embedding.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **kwargs
        )

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """`max_marginal_relevance_search_by_vector` in another thread."""
        return await run_in_executor(
            None,
            self.max_marginal_relevance_search_by_vector,
            embedding,
            k,
            fetch_k,
            lambda_mult,
            **kwargs,
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: MetadataFilter | None = None,  # noqa: A002  # LangChain's name
        ef: int | None = None,
        recall: float | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Documents near an embedding and far from each other.

        Args:
            embedding: the query.
            k: answers.
            fetch_k: nearest documents of which they are chosen.
            lambda_mult: from 0, as far from each other as possible, to 1, as near as possible.
            filter: as described for the class.
            ef: beam width.
            recall: recall to reach, in place of ef.
            **kwargs: none: others are refused.
        """
        if kwargs:
            raise TypeError(f"expected filter, ef and recall, got {', '.join(kwargs)}")
        found = self._search(embedding, fetch_k, filter, ef, recall, with_vectors=True)
        chosen = maximal_marginal_relevance(
            np.asarray(embedding, dtype=np.float32),
            [each.vector.tolist() for each in found],
            lambda_mult,
            k,
        )
        return [_document(*found[at][:2]) for at in chosen]

    def _search(
        self,
        embedding: list[float],
        k: int,
        where: MetadataFilter | None,
        ef: int | None,
        recall: float | None,
        with_vectors: bool = False,
    ) -> list[Found]:
        passes, key = _passes(where)
        return self._documents.search(
            embedding, k, passes=passes, key=key, ef=ef, recall=recall, with_vectors=with_vectors
        )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self._documents.metric == "l2":
            return lambda score: min(max(1 + score / math.sqrt(2), 0.0), 1.0)
        return lambda score: min(max(score, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        metric: str = "cosine",
        **kwargs: Any,
    ) -> L2RouteVectorStore:
        """A store of these texts; arguments as in `add_texts` and of the class."""
        store = cls(embedding, metric=metric)
        store.add_texts(texts, metadatas, ids=ids, **kwargs)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        metric: str = "cosine",
        **kwargs: Any,
    ) -> L2RouteVectorStore:
        """`from_texts` with the model's asynchronous method."""
        store = cls(embedding, metric=metric)
        await store.aadd_texts(texts, metadatas, ids=ids, **kwargs)
        return store

    def save_local(self, folder_path: str | Path) -> None:
        """Write documents and index into a directory; the embedding model is not saved.

        After a crash the directory has what the last save wrote, or what this one did. Documents
        are written as JSON: tuples in metadata become lists, and other values than dicts, lists,
        texts, numbers, booleans and None are refused. Changes wait for a save, searches do not.
        """
        self._documents.save(Path(folder_path), KIND)

    @classmethod
    def load_local(cls, folder_path: str | Path, embeddings: Embeddings) -> L2RouteVectorStore:
        """Read a store that `save_local` wrote.

        Args:
            folder_path: its directory.
            embeddings: the model that embedded the texts.
        """
        store = cls(embeddings)
        store._documents = Documents.load(Path(folder_path), KIND)
        return store


def _checked(
    texts: Iterable[str],
    metadatas: Sequence[dict[str, Any]] | None,
    ids: Sequence[str | None] | None,
) -> tuple[list[str], list[str], list[Record]]:
    """Texts, their ids and their records."""
    contents = list(texts)
    given = metadatas or [{}] * len(contents)
    names = [None] * len(contents) if ids is None else ids
    for what, values in (("metadatas", given), ("ids", names)):
        if len(values) != len(contents):
            raise ValueError(f"expected {len(contents)} {what}, one per text, got {len(values)}")
    records = [
        {"text": text, "metadata": deepcopy(metadata or {})}
        for text, metadata in zip(contents, given, strict=True)
    ]
    return contents, [str(name) if name else str(uuid4()) for name in names], records


def _document(name: str, record: Record) -> Document:
    """A document that its user may change."""
    return Document(id=name, page_content=record["text"], metadata=deepcopy(record["metadata"]))


def _score(distance: float, metric: str) -> float:
    if metric == "l2":
        return -math.sqrt(max(distance, 0.0))
    return -distance if metric == "ip" else 1.0 - distance


def _asked(where: Callable[[Document], bool]) -> Passes:
    """A function of a document, as one of an id and a record."""

    def passes(name: str, record: Record) -> bool:
        metadata = dict(record["metadata"])  # not a deep copy, which would take twice as long
        return bool(where(Document(id=name, page_content=record["text"], metadata=metadata)))

    return passes


def _passes(where: MetadataFilter | None) -> tuple[Passes | None, str | None]:
    """A filter as a function of an id and a record, and a text that says what it tests."""
    if where is None:
        return None, None
    if callable(where):
        return _asked(where), None
    if not isinstance(where, dict):
        raise TypeError(f"expected a filter of values in a dict, or a function, got {where!r}")
    for key, value in where.items():
        operators = [key, *(value if isinstance(value, dict) else ())]
        if any(str(each).startswith("$") for each in operators):
            raise ValueError(
                "expected values that metadata must be equal to, or a function for anything else, "
                f"got {{{key!r}: {value!r}}}"
            )
    wanted = deepcopy(where)

    def passes(_: str, record: Record) -> bool:
        metadata = record["metadata"]
        return all(key in metadata and metadata[key] == value for key, value in wanted.items())

    is_plain = all(isinstance(each, _PLAIN) for pair in wanted.items() for each in pair)
    return passes, repr(sorted(wanted.items(), key=repr)) if is_plain else None
