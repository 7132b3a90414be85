"""All that an index is, what can be done to it, and how it is kept."""
