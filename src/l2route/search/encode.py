"""Rows and biases of vertices in a routing space, also of those that come after it was made."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import (
    centre_of,
    centred,
    code_rows,
    corrected_bias,
    fit_codes,
    half_rows,
    negated_halves,
)
from l2route.search.layout import pad_rows
from l2route.search.space import RoutingSpace
from l2route.search.vertex_map import FilterMap, LinearMap


def check_encodes(space: RoutingSpace) -> None:
    """Refuse a space that new vertices cannot be mapped into."""
    if space.vertex_map is not None:
        return
    if space.model is None:
        made = "whose vertex map is not known: it was made by hand or by an older version"
    else:
        made = f"learned by {space.model}, which has no vertex map"
    raise ValueError(
        f"expected a space that new vectors can be mapped into, got {space.name}, {made}; "
        "learn again with the default model, or leave the space out"
    )


def encode_vertices(
    space: RoutingSpace,
    base: BaseVectors,
    lists: NDArray[np.int32],
    slots: NDArray[np.integer[Any]],
    in_degrees: NDArray[np.integer[Any]] | None = None,
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Compute the rows and biases of vertices in a space, with what the space has.

    The vertices that a space was made from get the rows that they have in it. Codes have the offset
    and scale of the space; values beyond their range get the nearest code. A learned space looks at
    the neighbours of a vertex and at theirs as they are now: rows computed earlier do not change
    when their surroundings do, but may be computed again by the same call.

    Args:
        space: the space.
        base: original vectors of all vertices, those of `slots` included.
        lists: neighbours of all vertices, −1 where there is none [at least n, width].
        slots: the vertices to encode [m].
        in_degrees: their in-degrees [m]; None where nothing points to them yet, for which learned
            spaces take an average one.

    Returns:
        Padded rows as those of the space [m, row width], and biases [m] if the space has biases.
    """
    vectors, bias = _mapped(space, base, lists, slots, in_degrees)
    if bias is not None:
        vectors, bias = centred(vectors, bias, space.centre, space.origin)
        if space.codes is not None:
            bias = corrected_bias(vectors, bias, space.codes, space.origin)
    return _rows_of(space, vectors), bias


def encode_space(space: RoutingSpace, base: BaseVectors, graph: Graph) -> RoutingSpace:
    """The space with all vertices encoded anew, by the graph, centre and scales of codes as of now.

    All have the average in-degree. In-degrees of a graph that was changed in place are spread
    otherwise than those that were learned from: with them less of the gain is kept.

    Args:
        space: a space with a vertex map; it may have been made for other vectors.
        base: the vectors.
        graph: the graph over them.
    """
    slots, lists = np.arange(graph.n_vertices), graph.neighbors
    vectors, bias = _mapped(space, base, lists, slots, None)
    if bias is not None:
        centre = None if space.centre is None else centre_of(vectors, space.origin)
        vectors, bias = centred(vectors, bias, centre, space.origin)
        space = replace(space, centre=centre)
    if space.codes is not None:
        codes = fit_codes(vectors, space.codes.bits)
        if bias is not None:
            bias = corrected_bias(vectors, bias, codes, space.origin)
        space = replace(space, codes=codes)
    return replace(space, rows=_rows_of(space, vectors), bias=bias)


def _mapped(
    space: RoutingSpace,
    base: BaseVectors,
    lists: NDArray[np.int32],
    slots: NDArray[np.integer[Any]],
    in_degrees: NDArray[Any] | None,
) -> tuple[NDArray[np.float32], NDArray[np.floating[Any]] | None]:
    """Routing vectors [m, dim] and biases [m], neither centred nor compressed."""
    check_encodes(space)
    if isinstance(space.vertex_map, FilterMap):
        return space.vertex_map(base, lists, slots, in_degrees)
    if isinstance(space.vertex_map, LinearMap):
        return space.vertex_map(base.rows[slots, : base.dim])
    return _projected(space, base.rows[slots, : base.dim])


def _projected(
    space: RoutingSpace, vectors: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.floating[Any]] | None]:
    """Vectors mapped as queries are [m, dim], and biases [m] that make inner products distances."""
    vectors = space.map_queries(vectors.astype(np.float32, copy=False))
    return vectors, None if space.bias is None else negated_halves(vectors)


def _rows_of(space: RoutingSpace, vectors: NDArray[np.float32]) -> NDArray[Any]:
    """Routing vectors [m, dim] as padded rows of the space's type."""
    if space.codes is not None:
        return code_rows(vectors, space.codes)
    return half_rows(vectors) if space.rows.dtype == np.float16 else pad_rows(vectors)
