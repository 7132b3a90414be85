"""Import from and export to other libraries and benchmarks."""
