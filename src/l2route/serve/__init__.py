"""An HTTP server over an index."""
