"""Methods side by side: recall against queries per second."""
