// Entry points that depend on the query: clusters of logged queries, each with the vertices that
// their walks end at. The cluster of a query is found in two levels, by a few of its coordinates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows.hpp"
#include "search/graph.hpp"
#include "types.hpp"

namespace l2route {

struct EntryScratch {
  std::vector<float> query;
  std::vector<std::int8_t> codes;
  std::vector<float> scores;
  std::vector<VertexId> entries;
};

struct EntryTable {
  // Centroids: of the groups of clusters, then of the clusters of every group, list by list.
  Rows rows;
  const std::int32_t* first = nullptr;  // row of each group's first cluster, and the end [n + 1]
  std::size_t n_groups = 0;
  const std::int32_t* clusters = nullptr;     // cluster of each row after those of the groups
  const VertexId* vertices = nullptr;         // entry points of each cluster, −1 for none
  std::size_t width = 0;                      // how many at the most
  const std::int32_t* coordinates = nullptr;  // of queries, by which clusters are told apart
  std::size_t dim = 0;                        // how many
  const float* centre = nullptr;              // subtracted from them; null for 0
  std::vector<VertexId> numbers;              // of all rows: 0, 1, …

  // The most that `find` may return.
  std::size_t max_cost(std::size_t routing_dim) const {
    std::size_t longest = 0;
    for (std::size_t g = 0; g < n_groups; ++g) {
      longest = std::max(longest, static_cast<std::size_t>(first[g + 1] - first[g]));
    }
    return cost(n_groups + longest, routing_dim);
  }

  // The cost of scoring rows, in scores of routing vectors of a dimension, rounded up.
  std::size_t cost(std::size_t n_rows, std::size_t routing_dim) const {
    return (n_rows * dim + routing_dim - 1) / routing_dim;
  }

  // Finds the entry points of a query, those that there are, into scratch.entries.
  // Returns the cost, in scores of routing vectors of a dimension, rounded up.
  std::size_t find(const float* query, std::size_t routing_dim, EntryScratch& scratch) const {
    scratch.query.assign(rows.width, 0.0f);
    for (std::size_t j = 0; j < dim; ++j) {
      scratch.query[j] = query[coordinates[j]] - (centre == nullptr ? 0.0f : centre[j]);
    }
    Scorer scorer(rows, scratch.query.data(), &scratch.codes);
    const std::size_t group = nearest(scorer, 0, n_groups, scratch);
    const std::size_t cluster = nearest(scorer, static_cast<std::size_t>(first[group]),
                                        static_cast<std::size_t>(first[group + 1]), scratch);
    const auto number = static_cast<std::size_t>(clusters[cluster - n_groups]);
    const VertexId* const own = vertices + number * width;
    scratch.entries.clear();
    for (std::size_t i = 0; i < width; ++i) {
      const VertexId vertex = load_id(own + i);  // deletions clear entry points
      if (vertex >= 0) scratch.entries.push_back(vertex);
    }
    return cost(scorer.n_computed(), routing_dim);
  }

 private:
  // The row with the best score among rows [begin, end).
  std::size_t nearest(Scorer& scorer, std::size_t begin, std::size_t end,
                      EntryScratch& scratch) const {
    scratch.scores.resize(std::max(scratch.scores.size(), end - begin));
    float* const scores = scratch.scores.data();
    scorer.score(numbers.data() + begin, end - begin, scores);
    return begin +
           static_cast<std::size_t>(std::min_element(scores, scores + (end - begin)) - scores);
  }
};

}  // namespace l2route
