// `_core.Searcher`: a searcher that keeps its graph and rows alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "bindings/entry_table.hpp"
#include "bindings/graph.hpp"
#include "bindings/live.hpp"
#include "bindings/rows.hpp"
#include "search/searcher.hpp"

namespace l2route {

// The rotation of these signs [n_rounds, dim], which are trusted to be +1 and −1.
inline Rotation rotation_of(const Matrix<std::int8_t>& signs) {
  require(signs.shape(1) >= Rotation::kLeastDim, "signs of at least 16 dimensions");
  return {signs.data(), signs.shape(0), signs.shape(1)};
}

class PySearcher {
 public:
  PySearcher(std::shared_ptr<const PyGraph> graph, std::shared_ptr<const PyRows> routing,
             std::size_t dim, bool is_cosine, float origin,
             std::shared_ptr<const PyRows> query_matrix, OptionalArray<float> query_centre,
             OptionalMatrix<std::int8_t> signs, OptionalArray<float> centre,
             std::shared_ptr<const PyRows> original, std::shared_ptr<const PyEntryTable> entries,
             std::shared_ptr<const PyStore> store)
      : graph_(std::move(graph)),
        routing_(std::move(routing)),
        query_matrix_(std::move(query_matrix)),
        query_centre_(std::move(query_centre)),
        signs_(std::move(signs)),
        centre_(std::move(centre)),
        original_(std::move(original)),
        entries_(std::move(entries)),
        store_(std::move(store)) {
    searcher_.graph = graph_->view();
    searcher_.routing = routing_->view();
    if (query_matrix_ != nullptr) searcher_.projection = query_matrix_->view();
    if (original_ != nullptr) searcher_.original = original_->view();
    searcher_.dim = dim;
    searcher_.routing_dim = query_matrix_ != nullptr ? query_matrix_->view().n : dim;
    if (query_centre_) {
      require(query_centre_->shape(0) == dim, "a centre of queries of their dimension");
      searcher_.query_centre = query_centre_->data();
    }
    if (signs_) set_rotation();
    if (centre_) {
      require(centre_->shape(0) == searcher_.routing_dim, "a centre of the routing dimension");
      searcher_.centre = centre_->data();
    }
    searcher_.origin = origin;
    searcher_.is_cosine = is_cosine;
    check_routing();
    check_original();
    set_entries();
  }

  const Searcher& searcher() const { return searcher_; }

  // The slots of a living index; null if the graph is constant.
  const Store* store() const { return store_ == nullptr ? nullptr : &store_->store(); }

 private:
  void set_entries() {
    if (entries_ == nullptr) return;
    const EntryTable& table = entries_->table();
    searcher_.entry_table = &table;
    searcher_.max_entry_cost = table.max_cost(searcher_.routing_dim);
    searcher_.graph.max_width = std::max(searcher_.graph.max_width, table.width + 1);
  }

  void set_rotation() {
    searcher_.rotation = rotation_of(*signs_);
    searcher_.routing_dim = searcher_.rotation->dim;
    require(query_matrix_ == nullptr && searcher_.routing_dim >= searcher_.dim,
            "signs of at least the dimension of queries, in place of a query matrix");
  }

  void check_routing() const {
    const Rows& routing = searcher_.routing;
    const Adjacency& bottom = searcher_.graph.bottom;
    require(routing.n == bottom.n, "as many routing vectors as vertices");
    require(
        routing.width == padded(searcher_.routing_dim, routing.element),
        "routing vectors padded to their width, and a query matrix where the dimension changes");
    require(!is_code(routing.element) || searcher_.routing_dim <= max_coded_dim(routing.element),
            "codes of fewer dimensions: sums of products would overflow");
    if (routing.near == nullptr) return;
    const std::size_t n_places = byte_count({bottom.n, bottom.width}, 1);
    require(n_places <= std::numeric_limits<VertexId>::max(), "at most 2^31 neighbours in all");
    require(routing.near->n == n_places, "a routing vector per neighbour");
  }

  void check_original() const {
    if (const auto& by = searcher_.projection) {
      require(by->width == padded(searcher_.dim, by->element) && by->element != Element::half &&
                  by->kind == ScoreKind::inner_product,
              "a query matrix of padded rows of float32 or codes scored by ip");
    }
    if (searcher_.original) {
      require(searcher_.original->n == searcher_.graph.bottom.n &&
                  searcher_.original->width == padded(searcher_.dim) &&
                  !is_code(searcher_.original->element),
              "as many original vectors as vertices, padded to their width");
    }
  }

  std::shared_ptr<const PyGraph> graph_;
  std::shared_ptr<const PyRows> routing_;
  std::shared_ptr<const PyRows> query_matrix_;
  OptionalArray<float> query_centre_;
  OptionalMatrix<std::int8_t> signs_;
  OptionalArray<float> centre_;
  std::shared_ptr<const PyRows> original_;
  std::shared_ptr<const PyEntryTable> entries_;
  std::shared_ptr<const PyStore> store_;
  Searcher searcher_;
};

}  // namespace l2route
