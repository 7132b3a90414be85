// `_core.Graph`: a similarity graph that keeps its arrays alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "search/graph.hpp"

namespace l2route {

inline Adjacency adjacency_of(const Matrix<VertexId>& matrix) {
  return {matrix.data(), matrix.shape(0), matrix.shape(1)};
}

// The vertices of an upper layer [n] and their neighbours [n, width].
using UpperLayer = std::tuple<Array<VertexId>, Matrix<VertexId>>;

class PyGraph {
 public:
  PyGraph(Matrix<VertexId> neighbors, Array<VertexId> entries, std::vector<UpperLayer> upper)
      : neighbors_(std::move(neighbors)), entries_(std::move(entries)), upper_(std::move(upper)) {
    require(entries_.shape(0) > 0, "at least one entry vertex");
    view_.bottom = adjacency_of(neighbors_);
    view_.entries = entries_.data();
    view_.n_entries = entries_.shape(0);
    view_.max_width = std::max(view_.bottom.width, view_.n_entries);
    for (const auto& [vertices, links] : upper_) {
      require(vertices.shape(0) == links.shape(0), "a neighbour list per vertex of a layer");
      view_.upper.push_back({vertices.data(), adjacency_of(links)});
      view_.max_width = std::max(view_.max_width, links.shape(1));
    }
  }

  const GraphView& view() const { return view_; }

 private:
  Matrix<VertexId> neighbors_;
  Array<VertexId> entries_;
  std::vector<UpperLayer> upper_;
  GraphView view_;
};

}  // namespace l2route
