// Python's classes for searching: graph, rows, searcher and plan.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/filter.hpp"
#include "bindings/graph.hpp"
#include "bindings/live.hpp"
#include "bindings/module.hpp"
#include "bindings/rows.hpp"
#include "bindings/searcher.hpp"
#include "bindings/stopping.hpp"
#include "bindings/without_gil.hpp"
#include "live/visit.hpp"
#include "search/filtered.hpp"
#include "search/queries.hpp"
#include "search/searcher.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

// ids [n, k], distances [n, k], counts [4, n]: of routing, rerank, hops and lists looked through
using Found = std::tuple<Output<std::int64_t>, Output<float>, Output<std::int32_t>>;
// offsets, vertices, hops, scores; offsets of the expanded vertices, expanded vertices
using TraceArrays = std::tuple<Output<std::int64_t>, Output<VertexId>, Output<std::int32_t>,
                               Output<float>, Output<std::int64_t>, Output<VertexId>>;
using Traced = decltype(std::tuple_cat(std::declval<Found>(), std::declval<TraceArrays>()));

TraceArrays arrays_of(const std::vector<RecordTrace>& traces) {
  const auto vertices_of = [](const RecordTrace& trace) -> const auto& { return trace.vertices; };
  const auto hops_of = [](const RecordTrace& trace) -> const auto& { return trace.hops; };
  const auto scores_of = [](const RecordTrace& trace) -> const auto& { return trace.scores; };
  const auto expanded_of = [](const RecordTrace& trace) -> const auto& { return trace.expanded; };
  const std::vector<std::int64_t> offsets =
      offsets_of(traces, [](const RecordTrace& trace) { return trace.vertices.size(); });
  const std::vector<std::int64_t> hop_offsets =
      offsets_of(traces, [](const RecordTrace& trace) { return trace.expanded.size(); });
  return {copied(offsets),
          joined<VertexId>(traces, offsets.back(), vertices_of),
          joined<std::int32_t>(traces, offsets.back(), hops_of),
          joined<float>(traces, offsets.back(), scores_of),
          copied(hop_offsets),
          joined<VertexId>(traces, hop_offsets.back(), expanded_of)};
}

// Queries [n, dim], or one query [dim].
using Queries = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

std::size_t query_count(const Queries& queries, std::size_t dim) {
  const std::size_t ndim = queries.ndim();
  if ((ndim == 1 || ndim == 2) && queries.shape(ndim - 1) == dim) {
    return ndim == 1 ? 1 : queries.shape(0);
  }
  std::string shape;
  for (std::size_t i = 0; i < ndim; ++i) {
    shape += (i == 0 ? "" : ", ") + std::to_string(queries.shape(i));
  }
  const bool is_batch = ndim == 1 || ndim == 2;
  throw std::invalid_argument(
      "expected queries [*, " + std::to_string(dim) + "], got " +
      (is_batch ? "[*, " + std::to_string(queries.shape(ndim - 1)) : "shape [" + shape) + "]");
}

// A search with fixed limits, labels and threads.
class PyPlan {
 public:
  PyPlan(std::shared_ptr<const PySearcher> from, OptionalArray<std::int64_t> labels, std::size_t k,
         std::size_t routing, std::size_t beam, std::size_t rerank, float slack,
         std::size_t n_threads, bool is_budgeted, const std::string& way, std::size_t n_work,
         std::size_t scan_rerank, const PySieve& sieve, std::shared_ptr<const PyStopRule> rule)
      : from_(std::move(from)),
        rule_(std::move(rule)),
        searcher_(from_->searcher()),
        labels_(std::move(labels)),
        limits_{k,  // in the order of Limits
                routing,
                beam,
                rerank,
                slack,
                rule_ == nullptr ? nullptr : &rule_->rule(),
                is_budgeted,
                n_work,
                scan_rerank,
                way_of(way),
                sieve_of(sieve)},
        n_threads_(n_threads) {
    require(!labels_ || labels_->shape(0) == searcher_.graph.bottom.n, "a label per vertex");
  }

  Found search(const Queries& queries, const PyFilters& filters) const {
    const std::size_t n = query_count(queries, searcher_.dim);
    Batch batch(n, *this);
    std::vector<NoTrace> none(n);
    answer(queries, n, filters, batch.answers, none);
    return batch.arrays();
  }

  Traced trace(const Queries& queries, const PyFilters& filters) const {
    const std::size_t n = query_count(queries, searcher_.dim);
    Batch batch(n, *this);
    std::vector<RecordTrace> traces(n);
    answer(queries, n, filters, batch.answers, traces);
    return std::tuple_cat(batch.arrays(), arrays_of(traces));
  }

 private:
  struct Batch {
    Batch(std::size_t n, const PyPlan& plan)
        : ids(new_array<std::int64_t>({n, plan.limits_.k})),
          distances(new_array<float>({n, plan.limits_.k})),
          counts(new_array<std::int32_t>({4, n})),
          answers{ids.first,
                  distances.first,
                  counts.first,
                  counts.first + n,
                  counts.first + 2 * n,
                  counts.first + 3 * n,
                  plan.labels_ ? plan.labels_->data() : nullptr} {}

    Found arrays() const { return {ids.second, distances.second, counts.second}; }

    std::pair<std::int64_t*, Output<std::int64_t>> ids;
    std::pair<float*, Output<float>> distances;
    std::pair<std::int32_t*, Output<std::int32_t>> counts;
    Answers answers;
  };

  template <class Tracer>
  void answer(const Queries& queries, std::size_t n, const PyFilters& given, Answers answers,
              std::vector<Tracer>& traces) const {
    std::vector<const Filter*> each = views_of(given, n, searcher_.graph.bottom.n);
    without_gil([&](Pulse& pulse) {
      check_queries(queries.data(), n, searcher_.dim, searcher_.is_cosine);
      const Visit visit(from_->store());
      visit.watch(answers);
      if (each.empty() && visit.meets_dead()) each.push_back(&visit.live_slots());
      if (each.empty()) {
        searcher_.search_traced(queries.data(), n, limits_, n_threads_, answers, traces, pulse);
      } else {
        const Filters filters{each.data(), each.size(), n};
        FilteredSearch<Tracer>(searcher_, limits_, filters, answers)
            .search(queries.data(), n, n_threads_, traces, pulse);
      }
    });
  }

  const std::shared_ptr<const PySearcher> from_;
  const std::shared_ptr<const PyStopRule> rule_;
  const Searcher& searcher_;
  OptionalArray<std::int64_t> labels_;
  const Limits limits_;
  const std::size_t n_threads_;
};

Output<float> normalized(const Matrix<float>& queries) {
  const std::size_t n = queries.shape(0), dim = queries.shape(1);
  check_queries(queries.data(), n, dim, true);
  auto [units, array] = new_array<float>({n, dim});
  for (std::size_t i = 0; i < n; ++i) normalize(queries.data() + i * dim, dim, units + i * dim);
  return array;
}

Output<float> rotated(const Matrix<float>& vectors, const Matrix<std::int8_t>& signs,
                      const std::string& simd) {
  const Rotation rotation = rotation_of(signs);
  const Rotate rotate = rotate_kernel(choose_level(simd));
  const std::size_t n = vectors.shape(0), n_in = vectors.shape(1);
  require(n_in <= rotation.dim, "vectors of at most as many dimensions as signs");
  auto [values, array] = new_array<float>({n, rotation.dim});
  without_gil([&, values = values](Pulse& pulse) {
    parallel_for(n, 0, pulse, [&](std::size_t i) {
      float* const row = values + i * rotation.dim;
      std::copy_n(vectors.data() + i * n_in, n_in, row);
      std::fill(row + n_in, row + rotation.dim, 0.0f);
      rotate(rotation, row);
    });
  });
  return array;
}

void bind_graph_and_rows(nb::module_& m) {
  nb::class_<PyGraph>(m, "Graph", "A similarity graph; trusts that ids were checked.")
      .def(nb::init<Matrix<VertexId>, Array<VertexId>, std::vector<UpperLayer>>(), "neighbors"_a,
           "entries"_a, "upper"_a);
  nb::class_<PyRows>(m, "Rows", "Padded vectors or codes, and how they are scored.")
      .def(nb::init<AnyMatrix, const std::string&, OptionalArray<float>, std::size_t,
                    OptionalArray<float>, OptionalArray<float>, std::shared_ptr<const PyRows>,
                    const std::string&>(),
           "rows"_a, "scorer"_a, nb::kw_only(), "bias"_a.none() = nb::none(), "code_bits"_a = 8,
           "offset"_a.none() = nb::none(), "scale"_a.none() = nb::none(),
           "near"_a.none() = nb::none(), "simd"_a = "auto",
           "rows [n, width]; near: copies of the neighbours' rows, list by list.")
      .def("scores", &PyRows::scores, "query"_a,
           "Score all rows against a padded query [width]; smaller is nearer.")
      .def("scores_at", &PyRows::scores_at, "query"_a, "ids"_a,
           "The same of the rows of these numbers [n], prefetched in blocks.");
}

void bind_searcher(nb::module_& m) {
  nb::class_<PyFilter>(m, "Filter", "Which vertices may be answers.")
      .def(nb::init<OptionalArray<std::uint64_t>, std::size_t, OptionalArray<std::int64_t>,
                    std::size_t>(),
           "words"_a.none(), "n_bits"_a, "labels"_a.none() = nb::none(), "n_alive"_a = 0,
           "words: bit v of word v / 64 for vertex v, none for all; labels: −1 does not pass; "
           "n_alive: labels other than −1, where there are no words.")
      .def_prop_ro("count", &PyFilter::count, "Number of vertices whose bit is set.");
  nb::class_<PyEntryTable>(m, "EntryTable", "Entry points that depend on the query.")
      .def(nb::init<std::shared_ptr<const PyRows>, Array<std::int32_t>, Array<std::int32_t>,
                    Matrix<VertexId>, Array<std::int32_t>, OptionalArray<float>>(),
           "rows"_a, nb::kw_only(), "first"_a, "clusters"_a, "vertices"_a, "coordinates"_a,
           "centre"_a.none(),
           "rows: centroids of groups, then of the clusters of every group; first: row of each "
           "group's first cluster, and the end; clusters: cluster of each row after the groups; "
           "vertices: entry points of each cluster, or −1. All of it is trusted.")
      .def("max_cost", &PyEntryTable::max_cost, "routing_dim"_a,
           "The most that finding entry points may cost, in scores of routing vectors.")
      .def("find", &PyEntryTable::find, "queries"_a, "routing_dim"_a,
           "Entry points of queries [n, dim], padded with −1, and what finding them costs.");
  nb::class_<PySearcher>(m, "Searcher", "Beam search over one graph in one routing space.")
      .def(
          nb::init<std::shared_ptr<const PyGraph>, std::shared_ptr<const PyRows>, std::size_t, bool,
                   float, std::shared_ptr<const PyRows>, OptionalArray<float>,
                   OptionalMatrix<std::int8_t>, OptionalArray<float>, std::shared_ptr<const PyRows>,
                   std::shared_ptr<const PyEntryTable>, std::shared_ptr<const PyStore>>(),
          "graph"_a, "routing"_a, nb::kw_only(), "dim"_a, "is_cosine"_a, "origin"_a,
          "query_matrix"_a.none(), "query_centre"_a.none() = nb::none(),
          "signs"_a.none() = nb::none(), "centre"_a.none() = nb::none(), "original"_a.none(),
          "entries"_a.none() = nb::none(), "store"_a.none() = nb::none());
  nb::class_<PyPlan>(m, "Plan", "A search with fixed limits, labels and threads.")
      .def(nb::init<std::shared_ptr<const PySearcher>, OptionalArray<std::int64_t>, std::size_t,
                    std::size_t, std::size_t, std::size_t, float, std::size_t, bool,
                    const std::string&, std::size_t, std::size_t, const PySieve&,
                    std::shared_ptr<const PyStopRule>>(),
           "searcher"_a, "labels"_a.none(), "k"_a, "routing"_a, "beam"_a, "rerank"_a, "slack"_a,
           "n_threads"_a, "is_budgeted"_a = false, nb::kw_only(), "way"_a = "any", "n_work"_a = 0,
           "scan_rerank"_a = 0, "sieve"_a.none() = nb::none(), "rule"_a.none() = nb::none(),
           "is_budgeted to sieve matter under filters only. sieve: beam, rerank, slack and n_work "
           "of "
           "walks through what does not pass. rule: ends walks without a filter in place of the "
           "slack.")
      .def("search", &PyPlan::search, "queries"_a.noconvert(), "filters"_a = PyFilters{},
           "Answer queries [n, dim] or [dim], under no filter, one for all or one for each: ids, "
           "distances, and counts of routing, rerank, hops and lists looked through.")
      .def("trace", &PyPlan::trace, "queries"_a.noconvert(), "filters"_a = PyFilters{},
           "Search, and also return the visited vertices (offsets, vertices, hops, scores) and the "
           "expanded ones (offsets, vertices).");
}

}  // namespace

void bind_search(nb::module_& m) {
  m.def("simd_levels", &simd_levels,
        "Names of the SIMD kernels this machine can run, fastest first.");
  m.def("normalized", &normalized, "queries"_a,
        "Queries [n, dim] scaled to length 1, as a search by cosine scales them.");
  m.def("rotated", &rotated, "vectors"_a, "signs"_a, "simd"_a = "auto",
        "Vectors [n, n_in] padded with zeros and rotated by signs [n_rounds, dim]: [n, dim].");
  m.def("scan_ns", &scan_ns, "row_bytes"_a, "Nanoseconds to score a row in a scan.");
  m.def("walk_ns", &walk_ns, "row_bytes"_a, "Nanoseconds to score a row in a walk.");
  m.attr("SCORES_PER_LIST") = kScoresPerList;
  bind_graph_and_rows(m);
  bind_live(m);
  bind_stopping(m);
  bind_searcher(m);
}

}  // namespace l2route
