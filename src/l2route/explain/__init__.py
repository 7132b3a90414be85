"""Walks of one query, step by step: what they visit, what it costs, and what they find."""
