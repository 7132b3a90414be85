"""The paper's experiments, a module each."""
