// `_core.EntryTable`: a table of entry points that keeps its arrays alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "bindings/arrays.hpp"
#include "bindings/rows.hpp"
#include "search/entry_table.hpp"

namespace l2route {

class PyEntryTable {
 public:
  PyEntryTable(std::shared_ptr<const PyRows> rows, Array<std::int32_t> first,
               Array<std::int32_t> clusters, Matrix<VertexId> vertices,
               Array<std::int32_t> coordinates, OptionalArray<float> centre)
      : rows_(std::move(rows)),
        first_(std::move(first)),
        clusters_(std::move(clusters)),
        vertices_(std::move(vertices)),
        coordinates_(std::move(coordinates)),
        centre_(std::move(centre)) {
    require(first_.shape(0) >= 2, "at least one group of clusters");
    table_.rows = rows_->view();
    table_.first = first_.data();
    table_.n_groups = first_.shape(0) - 1;
    require(table_.rows.n == table_.n_groups + clusters_.shape(0), "a row per group and cluster");
    table_.clusters = clusters_.data();
    table_.vertices = vertices_.data();
    table_.width = vertices_.shape(1);
    table_.coordinates = coordinates_.data();
    table_.dim = coordinates_.shape(0);
    require(padded(table_.dim, table_.rows.element) == table_.rows.width,
            "rows padded to the width of the coordinates");
    if (centre_) {
      require(centre_->shape(0) == table_.dim, "a centre of the coordinates");
      table_.centre = centre_->data();
    }
    table_.numbers.resize(table_.rows.n);
    std::iota(table_.numbers.begin(), table_.numbers.end(), 0);
  }

  const EntryTable& table() const { return table_; }

  // The most that finding entry points may cost, in scores of routing vectors of a dimension.
  std::size_t max_cost(std::size_t routing_dim) const { return table_.max_cost(routing_dim); }

  // Entry points of queries, padded with −1 [n, width], and what finding them costs [n].
  std::tuple<Output<VertexId>, Output<std::int32_t>> find(const Matrix<float>& queries,
                                                          std::size_t routing_dim) const {
    const std::size_t n = queries.shape(0), dim = queries.shape(1);
    const auto* const end = table_.coordinates + table_.dim;
    require(std::all_of(table_.coordinates, end, [&](auto j) { return std::size_t(j) < dim; }),
            "queries with all coordinates of the table");
    auto [vertices, vertex_array] = new_array<VertexId>({n, table_.width});
    auto [costs, cost_array] = new_array<std::int32_t>({n});
    std::fill_n(vertices, n * table_.width, -1);
    EntryScratch scratch;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t cost = table_.find(queries.data() + i * dim, routing_dim, scratch);
      costs[i] = static_cast<std::int32_t>(cost);
      std::copy(scratch.entries.begin(), scratch.entries.end(), vertices + i * table_.width);
    }
    return {vertex_array, cost_array};
  }

 private:
  std::shared_ptr<const PyRows> rows_;
  Array<std::int32_t> first_;
  Array<std::int32_t> clusters_;
  Matrix<VertexId> vertices_;
  Array<std::int32_t> coordinates_;
  OptionalArray<float> centre_;
  EntryTable table_;
};

}  // namespace l2route
