// Views of a similarity graph; the arrays belong to Python, which has checked every id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows.hpp"
#include "threads/pulse.hpp"

namespace l2route {

// Vertices that a pass over all of them goes by between two beats of the pulse.
inline constexpr std::size_t kVerticesPerBeat = 4096;

// Padded adjacency matrix: row v holds v's neighbours, then -1 to the end.
struct Adjacency {
  const std::int32_t* neighbors = nullptr;
  std::size_t n = 0;
  std::size_t width = 0;

  const std::int32_t* row(std::size_t vertex) const { return neighbors + vertex * width; }

  [[gnu::always_inline]] void prefetch(std::int32_t vertex) const {
    const std::int32_t* start = row(static_cast<std::size_t>(vertex));
    for (std::size_t i = 0; i < width; i += 16) __builtin_prefetch(start + i);
  }
};

// An upper layer of HNSW: the vertices it has, ascending, and their neighbours' global ids.
struct Layer {
  const std::int32_t* vertices = nullptr;
  Adjacency adjacency;

  const std::int32_t* row_of(std::int32_t vertex) const {
    const auto* found = std::lower_bound(vertices, vertices + adjacency.n, vertex);
    return adjacency.row(static_cast<std::size_t>(found - vertices));
  }
};

// Vertices in the order in which a breadth-first search from the entries comes by; those that it
// does not reach begin searches of their own, by ascending number.
inline void breadth_first(const Adjacency& adjacency, const std::int32_t* entries,
                          std::size_t n_entries, std::int32_t* order, Pulse& pulse) {
  std::vector<bool> seen(adjacency.n, false);
  std::size_t n = 0;
  const auto add = [&](std::int32_t vertex) {
    if (seen[static_cast<std::size_t>(vertex)]) return;
    seen[static_cast<std::size_t>(vertex)] = true;
    order[n++] = vertex;
  };
  for (std::size_t i = 0; i < n_entries; ++i) add(entries[i]);
  std::int32_t next = 0;
  for (std::size_t done = 0; done < adjacency.n; ++done) {
    if (done % kVerticesPerBeat == 0) pulse.beat();
    while (done == n) add(next++);
    const std::int32_t* row = adjacency.row(static_cast<std::size_t>(order[done]));
    for (std::size_t i = 0; i < adjacency.width && row[i] >= 0; ++i) add(row[i]);
  }
}

struct GraphView {
  Adjacency bottom;
  std::vector<Layer> upper;  // from the top down; empty for a flat graph
  const std::int32_t* entries = nullptr;
  std::size_t n_entries = 0;
  std::size_t max_width = 0;   // of the longest list that a search may have to score
  const Rows* near = nullptr;  // routing vectors of every vertex's neighbours, list by list
};

}  // namespace l2route
