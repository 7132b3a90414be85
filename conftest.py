"""The code blocks of the documents are tests: see tests/documents.py."""

from documents import DOCUMENTS

pytest_collect_file = DOCUMENTS.pytest()
