"""Memory that learning takes, and memory that there is."""

import os

from l2route.files.memory import available_bytes
from l2route.training.oracle import BLOCK_TARGETS

HOP_BYTES = 6 << 30
"""Bytes of hop blocks that are held at once, unless an option says otherwise."""
FREE_SHARE = 0.5
"""Share of the free memory that hop blocks may take, unless an option says otherwise."""
N_FEATURES, N_PRODUCTS = 5, 3
"""Features of a vertex, in vectors: see `features.vertex_features`."""
FEATURE_COPIES = 3
"""Copies of vertices' features that exist at once: groups, rows, rows as walks read them."""


def max_hop_blocks(n_vertices: int, memory_gb: float | None) -> int:
    """Blocks of hops that are held at once.

    Args:
        n_vertices: of the graph.
        memory_gb: what they may take; None for 6 GB, or half of what is free if that is less.
    """
    if memory_gb is None:
        room = min(HOP_BYTES, int(FREE_SHARE * available_bytes()))
    else:
        room = int(memory_gb * 1e9)
    return max(1, room // block_bytes(n_vertices))


def block_bytes(n_vertices: int) -> int:
    """Bytes of a block of hops: half a byte per vertex and target."""
    return n_vertices * BLOCK_TARGETS // 2


def expected_bytes(
    n_vertices: int,
    dim: int,
    n_targets: int,
    *,
    is_projected: bool = False,
    memory_gb: float | None = None,
    n_threads: int = 0,
) -> int:
    """Memory that learning with the filter takes at its peak, beside the index, to about a fifth.

    Args:
        n_vertices: of the graph.
        dim: of the vectors.
        n_targets: distinct targets of training queries, at most as many as vertices.
        is_projected: whether the routing dimension is smaller.
        memory_gb: what hop blocks may take; see `max_hop_blocks`.
        n_threads: that compute hop blocks; 0 for all cores.
    """
    n_blocks = min(-(-n_targets // BLOCK_TARGETS), max_hop_blocks(n_vertices, memory_gb))
    in_work = min(n_blocks, n_threads or os.cpu_count() or 1)
    n_features = N_FEATURES + (N_PRODUCTS if is_projected else 0)
    features = 4 * n_vertices * dim * n_features * FEATURE_COPIES
    return (n_blocks + in_work) * block_bytes(n_vertices) + features
