// Learned stopping rules, and recorded walks to learn them from.
#include "bindings/stopping.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "bindings/module.hpp"
#include "bindings/searcher.hpp"
#include "bindings/without_gil.hpp"
#include "live/visit.hpp"
#include "search/queries.hpp"
#include "search/recording.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

// features [n, n_levels, kStopFeatures], n_scored [n, n_levels], best [n, n_levels, n_best]
using Recorded = std::tuple<Output<float>, Output<std::int32_t>, Output<VertexId>>;

Recorded record(const PySearcher& from, const Matrix<float>& queries,
                const std::vector<float>& factors, std::size_t k, std::size_t rerank,
                std::size_t n_threads) {
  const Searcher& searcher = from.searcher();
  const std::size_t n = queries.shape(0), n_levels = factors.size();
  require(queries.shape(1) == searcher.dim, "queries of the dimension of the vectors");
  require(n_levels > 0 && 0 < k && k <= searcher.graph.bottom.n, "levels, and k vertices or more");
  const std::size_t n_best = std::max(k, rerank);
  auto [features, features_array] = new_array<float>({n, n_levels, kStopFeatures});
  auto [n_scored, n_scored_array] = new_array<std::int32_t>({n, n_levels});
  auto [best, best_array] = new_array<VertexId>({n, n_levels, n_best});
  // A walk that finds fewer than k vertices, in a graph that is not connected, leaves zeros.
  std::fill_n(features, n * n_levels * kStopFeatures, 0.0f);
  std::fill_n(n_scored, n * n_levels, 0);
  const StopRule rule{.factors = factors.data(), .n_levels = n_levels};
  // A walk that has scored all vertices goes on through the levels that are left.
  const std::size_t beyond = searcher.graph.bottom.n + 1;
  const Limits limits{.k = k, .routing = beyond, .rerank = rerank, .rule = &rule};
  const Recording recording{factors.data(), n_levels, features, n_scored, best, n_best};
  without_gil([&](Pulse& pulse) {
    check_queries(queries.data(), n, searcher.dim, searcher.is_cosine);
    const Visit visit(from.store());
    record_walks(searcher, queries.data(), n, limits, n_threads, recording, pulse);
  });
  return {features_array, n_scored_array, best_array};
}

}  // namespace

void bind_stopping(nb::module_& m) {
  m.attr("N_STOP_FEATURES") = kStopFeatures;
  m.attr("N_STOP_TERMS") = kStopTerms;
  nb::class_<PyStopRule>(m, "StopRule", "A learned rule by which walks end.")
      .def(nb::init<std::vector<float>, std::vector<float>, std::vector<float>, std::vector<float>,
                    float, std::size_t>(),
           "factors"_a, "centre"_a, "scale"_a, "weights"_a, "threshold"_a, "first"_a,
           "factors: of squared distances, by level; weights: 1, features, products of two.");
  m.def("record_walks", &record, "searcher"_a, "queries"_a, "factors"_a, "k"_a, "rerank"_a,
        "n_threads"_a,
        "Walk with queries [n, dim] from level to level, and return at each: features "
        "[n, n_levels, N_STOP_FEATURES], all 0 of a walk that finds fewer than k vertices, vectors "
        "scored [n, n_levels], and the max(k, rerank) best vertices [n, n_levels, n_best].");
}

}  // namespace l2route
