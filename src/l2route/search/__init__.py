"""Routing spaces, and beam search in them."""
