"""The summary of an index, in plain values."""

from dataclasses import asdict
from typing import Any

from l2route.graph.report import report
from l2route.state.space_record import entry_of_space
from l2route.state.state import IndexState


def info(state: IndexState) -> dict[str, Any]:
    """Size, metric, graph, spaces, settings, losses, drifts and bytes per vector of an index."""
    n = state.n_vectors
    return {
        "n_vertices": n,
        "dim": state.base.dim,
        "metric": state.base.metric,
        "vectors": str(state.base.rows.dtype),
        "graph": asdict(report(state.graph)),
        "spaces": [entry_of_space(space) for space in state.spaces],
        "labelled": state.labels is not None,
        "n_names": len(state.names),
        "n_validation": 0 if state.validation is None else len(state.validation.queries),
        "settings": [asdict(setting) for setting in state.settings.values()],
        "rules": [{"space": rule.space, "k": rule.k} for rule in state.rules.values()],
        "losses": [asdict(loss) for loss in state.losses.values()],
        "drifts": [asdict(drift) for drift in state.drifts.values()],
        "bytes_per_vector": state.n_bytes / max(1, n),
    }
