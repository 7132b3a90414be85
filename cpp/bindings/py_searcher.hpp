// Searches for Python: the arrays that they look into, and where their answers go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/without_gil.hpp"
#include "search/searcher.hpp"

namespace l2route {

// Keeps the arrays that its searcher looks into alive.
class PySearcher {
 public:
  PySearcher(Matrix<std::int32_t> neighbors, Array<std::int32_t> entries,
             std::vector<UpperLayer> upper, AnyMatrix routing, std::size_t routing_dim,
             const std::string& scorer, std::optional<Array<float>> bias, std::size_t code_bits,
             std::optional<Array<float>> offset, std::optional<Array<float>> scale, float origin,
             std::optional<AnyMatrix> near, std::optional<Array<float>> near_bias,
             std::optional<Matrix<float>> query_matrix, std::optional<AnyMatrix> original,
             std::size_t dim, const std::string& metric, const std::string& simd)
      : neighbors_(std::move(neighbors)),
        entries_(std::move(entries)),
        upper_(std::move(upper)),
        routing_(std::move(routing)),
        bias_(std::move(bias)),
        offset_(std::move(offset)),
        scale_(std::move(scale)),
        near_(std::move(near)),
        near_bias_(std::move(near_bias)),
        query_matrix_(std::move(query_matrix)),
        original_(std::move(original)) {
    const std::size_t n = neighbors_.shape(0);
    require(metric == "l2" || metric == "ip" || metric == "cosine", "metric l2, ip or cosine");
    require(routing_.shape(0) == n, "as many routing vectors as vertices");
    require(!bias_ || bias_->shape(0) == n, "as many biases as vertices");
    require(entries_.shape(0) > 0, "at least one entry vertex");
    require(query_matrix_ || routing_dim == dim, "a query matrix where the dimension changes");
    require(!query_matrix_ ||
                (query_matrix_->shape(0) == routing_dim && query_matrix_->shape(1) == padded(dim)),
            "a query matrix of routing_dim padded rows");
    require(!original_ || (original_->shape(0) == n && original_->shape(1) == padded(dim)),
            "as many original vectors as vertices, padded to their width");

    searcher_.dim = dim;
    searcher_.is_cosine = metric == "cosine";
    searcher_.routing_dim = routing_dim;
    searcher_.routing = rows_of(routing_, scorer, simd, code_bits);
    require(!is_code(searcher_.routing.element) || routing_dim <= max_coded_dim(code_bits),
            "codes of fewer dimensions: sums of products would overflow");
    require(searcher_.routing.width == padded(routing_dim, searcher_.routing.element),
            "routing vectors padded to their width");
    if (bias_) searcher_.routing.bias = bias_->data();
    searcher_.routing.codes = codes_of(searcher_.routing, offset_, scale_);
    searcher_.origin = origin;
    if (query_matrix_) searcher_.projection = rows_of(AnyMatrix(*query_matrix_), "ip", simd);
    if (original_) searcher_.original = rows_of(*original_, metric == "l2" ? "l2" : "ip", simd);
    searcher_.graph = graph_of(neighbors_, entries_, upper_);
    if (near_) {
      const std::size_t n_places = byte_count({n, neighbors_.shape(1)}, 1);
      require(n_places <= std::numeric_limits<VertexId>::max(), "at most 2^31 neighbours in all");
      near_rows_ = rows_of(*near_, scorer, simd, code_bits);
      require(near_rows_.n == n_places && near_rows_.width == searcher_.routing.width,
              "a routing vector per neighbour");
      require(near_bias_.has_value() == bias_.has_value() &&
                  (!near_bias_ || near_bias_->shape(0) == n_places),
              "a bias per neighbour where vertices have one");
      if (near_bias_) near_rows_.bias = near_bias_->data();
      searcher_.graph.near = &near_rows_;
    }
  }
  PySearcher(const PySearcher&) = delete;  // its searcher looks into it
  PySearcher& operator=(const PySearcher&) = delete;

  const Searcher& searcher() const { return searcher_; }

 private:
  Matrix<std::int32_t> neighbors_;
  Array<std::int32_t> entries_;
  std::vector<UpperLayer> upper_;
  AnyMatrix routing_;
  std::optional<Array<float>> bias_;
  std::optional<Array<float>> offset_;
  std::optional<Array<float>> scale_;
  std::optional<AnyMatrix> near_;
  std::optional<Array<float>> near_bias_;
  Rows near_rows_;
  std::optional<Matrix<float>> query_matrix_;
  std::optional<AnyMatrix> original_;
  Searcher searcher_;
};

// ids [n, k], distances [n, k], counts [3, n]: of routing, rerank and hops
using Found = std::tuple<Output<std::int64_t>, Output<float>, Output<std::int32_t>>;
// offsets, vertices, hops
using TraceArrays = std::tuple<Output<std::int64_t>, Output<std::int32_t>, Output<std::int32_t>>;
using Traced = decltype(std::tuple_cat(std::declval<Found>(), std::declval<TraceArrays>()));

// Queries [n, dim], or one query [dim].
using Queries = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// A search of which all is known but the queries; the searcher must outlive it.
class PyPlan {
 public:
  PyPlan(const PySearcher& from, std::optional<Array<std::int64_t>> labels, std::size_t k,
         std::size_t routing, std::size_t beam, std::size_t rerank, float slack,
         std::size_t n_threads)
      : searcher_(from.searcher()),
        labels_(std::move(labels)),
        limits_{k, routing, beam, rerank, slack},
        n_threads_(n_threads) {
    require(!labels_ || labels_->shape(0) == searcher_.graph.bottom.n, "a label per vertex");
  }

  Found search(const Queries& queries) const {
    const std::size_t n = count(queries);
    Batch batch(n, *this);
    without_gil([&](Pulse& pulse) {
      check_queries(queries.data(), n, searcher_.dim, searcher_.is_cosine);
      searcher_.search(queries.data(), n, limits_, n_threads_, batch.answers, pulse);
    });
    return batch.arrays();
  }

  Traced trace(const Queries& queries) const {
    const std::size_t n = count(queries);
    Batch batch(n, *this);
    std::vector<RecordTrace> traces(n);
    without_gil([&](Pulse& pulse) {
      check_queries(queries.data(), n, searcher_.dim, searcher_.is_cosine);
      searcher_.search_traced(queries.data(), n, limits_, n_threads_, batch.answers, traces, pulse);
    });
    auto [offsets, offsets_array] = new_array<std::int64_t>({n + 1});
    offsets[0] = 0;
    for (std::size_t i = 0; i < n; ++i) {
      offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(traces[i].vertices.size());
    }
    const auto n_visited = static_cast<std::size_t>(offsets[n]);
    auto [vertices, vertices_array] = new_array<std::int32_t>({n_visited});
    auto [hops, hops_array] = new_array<std::int32_t>({n_visited});
    for (std::size_t i = 0; i < n; ++i) {
      std::copy(traces[i].vertices.begin(), traces[i].vertices.end(), vertices + offsets[i]);
      std::copy(traces[i].hops.begin(), traces[i].hops.end(), hops + offsets[i]);
    }
    return std::tuple_cat(batch.arrays(), TraceArrays{offsets_array, vertices_array, hops_array});
  }

 private:
  struct Batch {
    Batch(std::size_t n, const PyPlan& plan)
        : ids(new_array<std::int64_t>({n, plan.limits_.k})),
          distances(new_array<float>({n, plan.limits_.k})),
          counts(new_array<std::int32_t>({3, n})),
          answers{ids.first,
                  distances.first,
                  counts.first,
                  counts.first + n,
                  counts.first + 2 * n,
                  plan.labels_ ? plan.labels_->data() : nullptr} {}

    Found arrays() const { return {ids.second, distances.second, counts.second}; }

    std::pair<std::int64_t*, Output<std::int64_t>> ids;
    std::pair<float*, Output<float>> distances;
    std::pair<std::int32_t*, Output<std::int32_t>> counts;
    Answers answers;
  };

  std::size_t count(const Queries& queries) const {
    const std::size_t ndim = queries.ndim();
    if ((ndim == 1 || ndim == 2) && queries.shape(ndim - 1) == searcher_.dim) {
      return ndim == 1 ? 1 : queries.shape(0);
    }
    std::string shape;
    for (std::size_t i = 0; i < ndim; ++i) {
      shape += (i == 0 ? "" : ", ") + std::to_string(queries.shape(i));
    }
    const bool is_batch = ndim == 1 || ndim == 2;
    throw std::invalid_argument(
        "expected queries [*, " + std::to_string(searcher_.dim) + "], got " +
        (is_batch ? "[*, " + std::to_string(queries.shape(ndim - 1)) : "shape [" + shape) + "]");
  }

  const Searcher& searcher_;
  std::optional<Array<std::int64_t>> labels_;
  const Limits limits_;
  const std::size_t n_threads_;
};

}  // namespace l2route
