// Views of a similarity graph. The arrays belong to Python, which has checked every id. The lists
// of a graph that lives may be replaced while they are read: ids are read one by one, atomically,
// and what was written before an id was stored is seen by whoever reads the id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "threads/pulse.hpp"
#include "types.hpp"

namespace l2route {

// Vertices between two beats of the pulse in a pass over all vertices.
inline constexpr std::size_t kVerticesPerBeat = 4096;

inline VertexId load_id(const VertexId* id) { return __atomic_load_n(id, __ATOMIC_ACQUIRE); }
inline void store_id(VertexId* id, VertexId value) {
  __atomic_store_n(id, value, __ATOMIC_RELEASE);
}

// Padded adjacency matrix: row v holds v's neighbours, then -1 to the end.
struct Adjacency {
  const VertexId* neighbors = nullptr;
  std::size_t n = 0;  // rows, unused ones included
  std::size_t width = 0;

  const VertexId* row(std::size_t vertex) const { return neighbors + vertex * width; }

  [[gnu::always_inline]] void prefetch(VertexId vertex) const {
    const VertexId* start = row(static_cast<std::size_t>(vertex));
    for (std::size_t i = 0; i < width; i += 16) __builtin_prefetch(start + i);
  }
};

// An upper layer of HNSW: its vertices, ascending, and the ids of their neighbours.
struct Layer {
  const VertexId* vertices = nullptr;
  Adjacency adjacency;

  const VertexId* row_of(VertexId vertex) const {
    const auto* found = std::lower_bound(vertices, vertices + adjacency.n, vertex);
    return adjacency.row(static_cast<std::size_t>(found - vertices));
  }
};

// Vertices in the order of a breadth-first search from the entries. Unreached vertices start
// further searches, in ascending order.
inline void breadth_first(const Adjacency& adjacency, const VertexId* entries,
                          std::size_t n_entries, VertexId* order, Pulse& pulse) {
  std::vector<bool> seen(adjacency.n, false);
  std::size_t n = 0;
  const auto add = [&](VertexId vertex) {
    if (seen[static_cast<std::size_t>(vertex)]) return;
    seen[static_cast<std::size_t>(vertex)] = true;
    order[n++] = vertex;
  };
  for (std::size_t i = 0; i < n_entries; ++i) add(entries[i]);
  VertexId next = 0;
  for (std::size_t done = 0; done < adjacency.n; ++done) {
    if (done % kVerticesPerBeat == 0) pulse.beat();
    while (done == n) add(next++);
    const VertexId* row = adjacency.row(static_cast<std::size_t>(order[done]));
    for (std::size_t i = 0; i < adjacency.width && row[i] >= 0; ++i) add(row[i]);
  }
}

struct GraphView {
  Adjacency bottom;
  std::vector<Layer> upper;  // from the top down; empty for a flat graph
  const VertexId* entries = nullptr;
  std::size_t n_entries = 0;
  std::size_t max_width = 0;  // length of the longest list that a search may have to score
};

}  // namespace l2route
