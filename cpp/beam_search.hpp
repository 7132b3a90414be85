// The search: Algorithm 1 of "Learning to Route in Similarity Graphs", under an exact budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "distance.hpp"
#include "frontier.hpp"
#include "graph.hpp"
#include "visited.hpp"

namespace l2route {

// A tracer observes a search: `visit` is told of every vertex in the order visited, with its score
// and the hop in which it was, and gives the key that the frontier ranks it by; `expand` is told of
// every vertex expanded on the bottom layer; `prefetch` of what will be visited soon.
struct NoTrace {
  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t) { return make_key(score, vertex); }
  void expand(VertexId) {}
};

struct RecordTrace {
  std::vector<VertexId> vertices;
  std::vector<std::int32_t> hops;

  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t hop) {
    vertices.push_back(vertex);
    hops.push_back(static_cast<std::int32_t>(hop));
    return make_key(score, vertex);
  }
  void expand(VertexId) {}
};

// Buffers of one thread, kept from query to query so that a search allocates nothing.
struct Scratch {
  VisitedSet visited;
  SortedFrontier sorted;
  HeapFrontier heap;
  std::vector<VertexId> fresh;
  std::vector<float> scores;
  std::vector<Key> best;
};

// One query's walk. `budget` bounds the scores computed; the frontier's capacity is the beam width.
template <class Frontier, class Tracer>
class Walk {
 public:
  Walk(const GraphView& graph, Scorer& scorer, Frontier& frontier, Tracer& tracer,
       std::size_t budget, Scratch& scratch)
      : graph_(graph),
        scorer_(scorer),
        frontier_(frontier),
        tracer_(tracer),
        budget_(budget),
        visited_(scratch.visited),
        fresh_(scratch.fresh),
        scores_(scratch.scores) {
    visited_.reset(graph.bottom.n);
    fresh_.resize(graph.max_width);
    scores_.resize(graph.max_width);
  }

  void run() {
    Key nearest = visit(graph_.entries, graph_.n_entries);
    for (const Layer& layer : graph_.upper) nearest = descend(layer, nearest);
    while (scorer_.n_computed() < budget_) {
      const auto vertex = frontier_.pop();
      if (!vertex) break;
      ++n_hops_;
      tracer_.expand(*vertex);
      visit(graph_.bottom.row(static_cast<std::size_t>(*vertex)), graph_.bottom.width);
    }
  }

  std::size_t n_hops() const { return n_hops_; }

 private:
  // Greedy walk in an upper layer. The nearest vertex so far is the nearest of all visited, so
  // neighbours that were visited already cannot improve on it and are not scored again.
  Key descend(const Layer& layer, Key nearest) {
    while (scorer_.n_computed() < budget_) {
      ++n_hops_;
      const Key found = visit(layer.row_of(vertex_of(nearest)), layer.adjacency.width);
      if (found >= nearest) break;
      nearest = found;
    }
    return nearest;
  }

  // Scores the unvisited vertices of a neighbour list, as many as the budget allows.
  // Returns the key of the best of them.
  Key visit(const VertexId* neighbors, std::size_t width) {
    const std::size_t allowed = budget_ - scorer_.n_computed();
    std::size_t n = 0;
    for (std::size_t i = 0; i < width && neighbors[i] >= 0 && n < allowed; ++i) {
      const VertexId vertex = neighbors[i];
      if (visited_.contains(vertex)) continue;
      visited_.insert(vertex);
      scorer_.prefetch(vertex);
      tracer_.prefetch(vertex);
      fresh_[n++] = vertex;
    }
    if (const auto next = frontier_.peek()) {
      __builtin_prefetch(graph_.bottom.row(static_cast<std::size_t>(*next)));
    }
    scorer_.score(fresh_.data(), n, scores_.data());
    Key best = std::numeric_limits<Key>::max();
    for (std::size_t i = 0; i < n; ++i) {
      const Key key = tracer_.visit(fresh_[i], scores_[i], n_hops_);
      frontier_.push(key);
      best = std::min(best, key);
    }
    return best;
  }

  const GraphView& graph_;
  Scorer& scorer_;
  Frontier& frontier_;
  Tracer& tracer_;
  const std::size_t budget_;
  VisitedSet& visited_;
  std::vector<VertexId>& fresh_;
  std::vector<float>& scores_;
  std::size_t n_hops_ = 0;
};

}  // namespace l2route
