"""The state of an index: its content, its changes and its files."""
