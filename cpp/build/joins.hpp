// Edges that queries lack: the nearest neighbours of a query should reach each other by edges among
// themselves, or a walk that finds one of them may miss the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "build/prune.hpp"
#include "kernels/rows.hpp"
#include "search/graph.hpp"
#include "threads/parallel.hpp"

namespace l2route {

using Edge = std::pair<VertexId, VertexId>;

// The nearest neighbours of one query, and which of them reach which by edges among themselves.
class Neighborhood {
 public:
  static constexpr std::size_t kMaxSize = 64;  // a set of them is a word of bits

  Neighborhood(const Adjacency& graph, const VertexId* nearest, std::size_t n)
      : nearest_(nearest), n_(n) {
    std::pair<VertexId, std::size_t> places[kMaxSize];
    for (std::size_t i = 0; i < n; ++i) places[i] = {nearest[i], i};
    std::sort(places, places + n);
    for (std::size_t i = 0; i < n; ++i) {
      reach_[i] = bit(i);
      const VertexId* const list = graph.row(static_cast<std::size_t>(nearest[i]));
      for (std::size_t j = 0; j < graph.width && list[j] >= 0; ++j) {
        const auto* const found =
            std::lower_bound(places, places + n, std::pair<VertexId, std::size_t>{list[j], 0});
        if (found != places + n && found->first == list[j]) reach_[i] |= bit(found->second);
      }
    }
    for (std::size_t through = 0; through < n; ++through) {  // Warshall's closure
      for (std::size_t i = 0; i < n; ++i) {
        if (reach_[i] & bit(through)) reach_[i] |= reach_[through];
      }
    }
  }

  bool is_connected() const {
    const std::uint64_t all = n_ == kMaxSize ? ~std::uint64_t{0} : bit(n_) - 1;
    return std::all_of(reach_, reach_ + n_, [all](std::uint64_t each) { return each == all; });
  }

  // Adds the edges that connect all, shortest pairs first. Rows are scored by l2.
  void connect(const Rows& rows, std::vector<Edge>& edges) {
    for (const auto& [i, j] : pairs_by_distance(rows)) {
      join(i, j, edges);
      join(j, i, edges);
    }
  }

 private:
  using Pair = std::pair<std::size_t, std::size_t>;

  static std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i; }

  void join(std::size_t from, std::size_t to, std::vector<Edge>& edges) {
    if (reach_[from] & bit(to)) return;
    edges.emplace_back(nearest_[from], nearest_[to]);
    for (std::size_t i = 0; i < n_; ++i) {
      if (reach_[i] & bit(from)) reach_[i] |= reach_[to];
    }
  }

  std::vector<Pair> pairs_by_distance(const Rows& rows) const {
    std::vector<std::pair<float, Pair>> measured;
    measured.reserve(n_ * (n_ - 1) / 2);
    std::vector<float> query(rows.width), scores(n_);
    for (std::size_t i = 0; i + 1 < n_; ++i) {
      copy_floats(rows, nearest_[i], query.data());
      Scorer scorer(rows, query.data());
      scorer.score(nearest_ + i + 1, n_ - i - 1, scores.data());
      for (std::size_t j = i + 1; j < n_; ++j) measured.push_back({scores[j - i - 1], {i, j}});
    }
    std::sort(measured.begin(), measured.end());
    std::vector<Pair> pairs(measured.size());
    std::transform(measured.begin(), measured.end(), pairs.begin(),
                   [](const auto& each) { return each.second; });
    return pairs;
  }

  const VertexId* const nearest_;
  const std::size_t n_;
  std::uint64_t reach_[kMaxSize];
};

// The edges that each query lacks among its nearest neighbours [n, depth], query by query. Whether
// an edge is lacking does not depend on the other queries.
inline std::vector<Edge> lacking_edges(const Adjacency& graph, const Rows& rows,
                                       const Adjacency& nearest, std::size_t n_threads,
                                       Pulse& pulse) {
  std::vector<std::vector<Edge>> lacking(nearest.n);
  parallel_for(nearest.n, n_threads, pulse, [&](std::size_t query) {
    Neighborhood found(graph, nearest.row(query), nearest.width);
    if (!found.is_connected()) found.connect(rows, lacking[query]);
  });
  std::vector<Edge> edges;
  for (const auto& each : lacking) edges.insert(edges.end(), each.begin(), each.end());
  return edges;
}

}  // namespace l2route
