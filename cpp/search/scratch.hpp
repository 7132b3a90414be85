// Buffers of walks.
#pragma once

#include <type_traits>
#include <vector>

#include "search/frontier.hpp"
#include "search/visited.hpp"
#include "types.hpp"

namespace l2route {

// Buffers of one thread, reused from query to query so that a search allocates nothing.
struct Scratch {
  VisitedSet visited;
  SortedFrontier sorted;
  HeapFrontier heap;
  SievedFrontier sieved;
  std::vector<VertexId> fresh;
  std::vector<VertexId> places;
  std::vector<float> scores;
  std::vector<Key> keys;
  std::vector<Key> passing;
  std::vector<VertexId> failing;
  std::vector<VertexId> listed;
  std::vector<Key> best;
  std::vector<Key> aside;

  template <class Frontier>
  Frontier& frontier() {
    if constexpr (std::is_same_v<Frontier, SortedFrontier>) {
      return sorted;
    } else if constexpr (std::is_same_v<Frontier, SievedFrontier>) {
      return sieved;
    } else {
      return heap;
    }
  }
};

}  // namespace l2route
