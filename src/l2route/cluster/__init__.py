"""Indexes beyond one machine: shards on Ray, and learning which of them to ask."""
