"""Better edges for a graph: refined, connected, without some of its vertices."""
