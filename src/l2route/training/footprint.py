"""Memory that learning takes."""

import os

from l2route.files.memory import available_bytes
from l2route.training.oracle import BLOCK_TARGETS

HOP_BYTES = 6 << 30
"""Default limit on the bytes of hop blocks held at once."""
FREE_SHARE = 0.5
"""Fraction of the free memory that hop blocks may take by default."""
N_FEATURES, N_PRODUCTS = 5, 3
"""Groups of features of a vertex, see `vertex_features`, and products if projected."""
FEATURE_COPIES = 3
"""Copies of the features that exist at once: groups, rows, padded rows."""


def max_hop_blocks(n_vertices: int, memory_gb: float | None) -> int:
    """Largest number of hop blocks held at once.

    Args:
        n_vertices: vertices of the graph.
        memory_gb: memory for them in 10⁹ bytes; None for 6.4, or half of the free memory if that
            is less.
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
    """Peak memory of learning with the filter, beside the index, within about a fifth.

    Args:
        n_vertices: vertices of the graph.
        dim: dimension of the vectors.
        n_targets: distinct targets of training queries.
        is_projected: whether the routing dimension is smaller than `dim`.
        memory_gb: memory for hop blocks; see `max_hop_blocks`.
        n_threads: threads that compute hop blocks; 0 for all cores.
    """
    n_blocks = min(-(-n_targets // BLOCK_TARGETS), max_hop_blocks(n_vertices, memory_gb))
    in_work = min(n_blocks, n_threads or os.cpu_count() or 1)
    n_features = N_FEATURES + (N_PRODUCTS if is_projected else 0)
    features = 4 * n_vertices * dim * n_features * FEATURE_COPIES
    return (n_blocks + in_work) * block_bytes(n_vertices) + features
