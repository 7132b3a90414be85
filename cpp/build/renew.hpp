// New neighbours for vertices of a graph that is complete.
#pragma once

#include <cstddef>
#include <vector>

#include "build/candidates.hpp"
#include "build/prune.hpp"

namespace l2route {

// Writes lists [n, degree] for the vertices sought, chosen among the `n_candidates` nearest that a
// walk finds and their present neighbours. A walk starts from the present neighbours.
inline void renew_lists(const Finder& finder, const Pruner& pruner, const Sought& sought,
                        std::size_t n_candidates, std::size_t degree, std::size_t n_threads,
                        VertexId* lists, Pulse& pulse) {
  const Adjacency& bottom = finder.graph.bottom;
  const auto start = [&](std::size_t i) { return finder.from_neighbors(sought.vertices[i]); };
  finder.find(sought, n_threads, pulse, start,
              [&](std::size_t i, Scorer&, const std::vector<Key>& best) {
                const std::size_t n = std::min(n_candidates, best.size());
                const VertexId vertex = sought.vertices[i];
                const VertexId* list = bottom.row(static_cast<std::size_t>(vertex));
                std::vector<VertexId> ids(list, list + bottom.width);
                for (std::size_t rank = 0; rank < n; ++rank) ids.push_back(vertex_of(best[rank]));
                pruner.prune(vertex, ids, degree, true, lists + i * degree);
              });
}

}  // namespace l2route
