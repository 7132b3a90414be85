"""Indexes of other libraries, in and out, and their benchmarks."""
