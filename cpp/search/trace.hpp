// Tracers: what observes a walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "search/frontier.hpp"
#include "types.hpp"

namespace l2route {

// A tracer observes a search. `visit` is called for every vertex in the order visited, with its
// score and hop, and returns the key that the frontier ranks it by; `expand` is called for every
// vertex expanded on the bottom layer, `descend` for every one on an upper layer; `prefetch` for
// vertices that will be visited soon.
struct NoTrace {
  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t) { return make_key(score, vertex); }
  void descend(VertexId) {}
  void expand(VertexId) {}
};

struct RecordTrace {
  std::vector<VertexId> vertices;  // in the order visited
  std::vector<std::int32_t> hops;
  std::vector<float> scores;
  std::vector<VertexId> expanded;  // one per hop, on any layer

  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t hop) {
    vertices.push_back(vertex);
    hops.push_back(static_cast<std::int32_t>(hop));
    scores.push_back(score);
    return make_key(score, vertex);
  }
  void descend(VertexId vertex) { expanded.push_back(vertex); }
  void expand(VertexId vertex) { expanded.push_back(vertex); }
};

}  // namespace l2route
