"""Measure a search: metrics, the methods compared, and tables and plots of the result."""
