"""The vector store for LangChain: its standard suite, and a twin."""

from __future__ import annotations

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from l2route.interop.langchain import L2RouteVectorStore


class TestStandardSuite(VectorStoreIntegrationTests):
    """LangChain's standard suite for vector stores, with and without asyncio."""

    @pytest.fixture(params=["cosine", "ip", "l2"])
    def vectorstore(self, request: pytest.FixtureRequest) -> VectorStore:
        """An empty store of each metric."""
        return L2RouteVectorStore(self.get_embeddings(), metric=request.param)
