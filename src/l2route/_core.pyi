"""C++ core of l2route: counted scorers and the beam search."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def simd_levels() -> list[str]:
    """Names of the SIMD kernels this machine can run, fastest first."""

def score_rows(rows: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], query: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], scorer: str, simd: str = 'auto', code_bits: int = 8, offset: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, scale: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> NDArray[numpy.float32]:
    """
    Score padded rows [n, width] against a padded query [width]; smaller is nearer.
    """

def normalized(queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
    """Queries [n, dim] as a search by cosine scales them, to a length of 1."""

def breadth_first_order(neighbors: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.int32]:
    """Vertices in the order of a breadth-first search from the entries [n]."""

def pruned_lists(*, rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], candidates: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], degree: int, alpha: float, n_threads: int, simd: str = 'auto') -> NDArray[numpy.int32]:
    """
    Neighbour lists [n, degree] pruned by l2 out of candidates [n, width], both ways.
    """

def hops_to_targets(neighbors: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], targets: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint64]:
    """Hops from every vertex to up to 512 targets, bit-sliced [n, 8, 4]."""

def rollout(*, neighbors: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], upper: Sequence[tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]]], vertex_rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, query_rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], blocks: Sequence[Annotated[NDArray[numpy.uint64], dict(shape=(None, 8, 4), order='C', device='cpu', writable=False)]], block_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], target_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], query_ids: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], hidden: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], budget: int, k: int, temperature: float, routing_weight: float, topk_weight: float, topk_sharpness: float, teacher_forcing: bool, seed: int, with_query_gradient: bool, n_threads: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.bool_], NDArray[numpy.bool_], NDArray[numpy.float32]]:
    """
    Walk as the agent: offsets, vertices, gradients, routing, topk, n_steps, is_found, is_kept, gradient in query rows.
    """

def vertex_gradient(*, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], vertices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], gradients: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], query_rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_vertices: int, n_threads: int) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]:
    """Gradient in vertex rows [n, width] and biases [n]."""

class Searcher:
    """Beam search over one graph in one routing space."""

    def __init__(self, *, neighbors: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], entries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], upper: Sequence[tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]]], routing: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)], routing_dim: int, scorer: str, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, code_bits: int, offset: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, scale: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, origin: float, near: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, near_bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, query_matrix: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, original: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, dim: int, metric: str, simd: str = 'auto') -> None: ...

class Plan:
    """A search of which all is known but the queries."""

    def __init__(self, searcher: Searcher, labels: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, k: int, routing: int, beam: int, rerank: int, slack: float, n_threads: int) -> None: ...

    def search(self, queries: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.int64], NDArray[numpy.float32], NDArray[numpy.int32]]:
        """
        Answer queries [n, dim] or [dim]: ids, distances, and counts of routing, rerank, hops.
        """

    def trace(self, queries: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.int64], NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.int32]]:
        """Search, and also return what was visited: offsets, vertices, hops."""
