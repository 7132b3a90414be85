"""The serving recipe: from vectors and a query log to an index that reaches a recall."""
