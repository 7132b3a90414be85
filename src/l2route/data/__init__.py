"""Vectors, datasets and what is true of them."""
