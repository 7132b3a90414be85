"""Vectors, datasets, exact neighbours and recall."""
