"""Changes of a graph: refine, connect, remove vertices, renumber."""
