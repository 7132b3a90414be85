"""Learning to route: walks, objective, loop and checkpoints."""
