"""Files: opened with distrust, replaced whole, kept as an index, fetched."""
