"""Similarity graphs, built by faiss."""
