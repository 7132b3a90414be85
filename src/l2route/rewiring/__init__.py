"""Changes of a graph: refinement, connection, removal of vertices, renumbering."""
