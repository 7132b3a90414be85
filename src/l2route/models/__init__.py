"""Models of routing vectors."""
