"""Similarity graphs: what they are and how faiss builds them."""
