// Python's door to the core: check shapes, release the GIL, call. Values (ids, padding, finite
// floats) are checked once by the Python layer, which alone calls this module.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "searcher.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace l2route {
namespace {

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<nb::numpy, T>;

// A numpy array that owns its memory.
template <class T>
std::pair<T*, Output<T>> new_array(std::vector<std::size_t> shape) {
  std::size_t size = 1;
  for (const std::size_t extent : shape) size *= extent;
  auto data = std::make_unique<T[]>(size);
  T* pointer = data.get();
  nb::capsule owner(data.release(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {pointer, Output<T>(pointer, shape.size(), shape.data(), owner)};
}

ScoreKind score_kind(const std::string& name) {
  if (name == "l2") return ScoreKind::l2;
  if (name == "ip") return ScoreKind::inner_product;
  throw std::invalid_argument("expected scorer 'l2' or 'ip', got '" + name + "'");
}

Rows rows_of(const Matrix<float>& matrix, const std::string& scorer, const std::string& simd) {
  if (matrix.shape(1) % kLanes != 0) {
    throw std::invalid_argument("expected rows padded to a multiple of 16 floats, got " +
                                std::to_string(matrix.shape(1)));
  }
  return {matrix.data(), matrix.shape(0), matrix.shape(1), choose_kernel(score_kind(scorer), simd),
          nullptr};
}

Adjacency adjacency_of(const Matrix<std::int32_t>& matrix) {
  return {matrix.data(), matrix.shape(0), matrix.shape(1)};
}

std::size_t padded(std::size_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// ids, distances, n_routing, n_rerank, n_hops
using Found = std::tuple<Output<std::int64_t>, Output<float>, Output<std::int32_t>,
                         Output<std::int32_t>, Output<std::int32_t>>;
// offsets, vertices, hops
using Visits = std::tuple<Output<std::int64_t>, Output<std::int32_t>, Output<std::int32_t>>;
using Traced = decltype(std::tuple_cat(std::declval<Found>(), std::declval<Visits>()));

// Keeps the arrays that its searcher looks into alive.
class PySearcher {
 public:
  using UpperLayer = std::tuple<Array<std::int32_t>, Matrix<std::int32_t>>;

  PySearcher(Matrix<std::int32_t> neighbors, Array<std::int32_t> entries,
             std::vector<UpperLayer> upper, Matrix<float> routing, std::size_t routing_dim,
             const std::string& scorer, std::optional<Array<float>> bias,
             std::optional<Matrix<float>> query_matrix, std::optional<Matrix<float>> original,
             std::size_t dim, const std::string& metric_scorer, const std::string& simd)
      : neighbors_(std::move(neighbors)),
        entries_(std::move(entries)),
        upper_(std::move(upper)),
        routing_(std::move(routing)),
        bias_(std::move(bias)),
        query_matrix_(std::move(query_matrix)),
        original_(std::move(original)) {
    const std::size_t n = neighbors_.shape(0);
    require(routing_.shape(0) == n, "as many routing vectors as vertices");
    require(routing_.shape(1) == padded(routing_dim), "routing vectors padded to their width");
    require(!bias_ || bias_->shape(0) == n, "as many biases as vertices");
    require(entries_.shape(0) > 0, "at least one entry vertex");
    require(query_matrix_ || routing_dim == dim, "a query matrix where the dimension changes");
    require(!query_matrix_ ||
                (query_matrix_->shape(0) == routing_dim && query_matrix_->shape(1) == padded(dim)),
            "a query matrix of routing_dim padded rows");
    require(!original_ || (original_->shape(0) == n && original_->shape(1) == padded(dim)),
            "as many original vectors as vertices, padded to their width");

    searcher_.dim = dim;
    searcher_.routing_dim = routing_dim;
    searcher_.routing = rows_of(routing_, scorer, simd);
    if (bias_) searcher_.routing.bias = bias_->data();
    if (query_matrix_) searcher_.projection = rows_of(*query_matrix_, "ip", simd);
    if (original_) searcher_.original = rows_of(*original_, metric_scorer, simd);
    set_graph();
  }

  Found search(const Matrix<float>& queries, std::size_t k, std::size_t routing, std::size_t beam,
               std::size_t rerank, std::size_t n_threads) const {
    Batch batch(queries.shape(0), k);
    check(queries);
    {
      const nb::gil_scoped_release release;
      searcher_.search(queries.data(), queries.shape(0), {k, routing, beam, rerank}, n_threads,
                       batch.answers);
    }
    return batch.arrays();
  }

  Traced trace(const Matrix<float>& queries, std::size_t k, std::size_t routing, std::size_t beam,
               std::size_t rerank, std::size_t n_threads) const {
    const std::size_t n = queries.shape(0);
    Batch batch(n, k);
    check(queries);
    std::vector<RecordTrace> traces;
    {
      const nb::gil_scoped_release release;
      searcher_.search_traced(queries.data(), n, {k, routing, beam, rerank}, n_threads,
                              batch.answers, traces);
    }
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
    return std::tuple_cat(batch.arrays(), Visits{offsets_array, vertices_array, hops_array});
  }

 private:
  struct Batch {
    Batch(std::size_t n, std::size_t k)
        : ids(new_array<std::int64_t>({n, k})),
          distances(new_array<float>({n, k})),
          n_routing(new_array<std::int32_t>({n})),
          n_rerank(new_array<std::int32_t>({n})),
          n_hops(new_array<std::int32_t>({n})),
          answers{ids.first, distances.first, n_routing.first, n_rerank.first, n_hops.first} {}

    Found arrays() const {
      return {ids.second, distances.second, n_routing.second, n_rerank.second, n_hops.second};
    }

    std::pair<std::int64_t*, Output<std::int64_t>> ids;
    std::pair<float*, Output<float>> distances;
    std::pair<std::int32_t*, Output<std::int32_t>> n_routing;
    std::pair<std::int32_t*, Output<std::int32_t>> n_rerank;
    std::pair<std::int32_t*, Output<std::int32_t>> n_hops;
    Answers answers;
  };

  static void require(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument("expected " + what);
  }

  void check(const Matrix<float>& queries) const {
    require(queries.shape(1) == searcher_.dim, "queries [*, " + std::to_string(searcher_.dim) +
                                                   "], got [*, " +
                                                   std::to_string(queries.shape(1)) + "]");
  }

  void set_graph() {
    GraphView& graph = searcher_.graph;
    graph.bottom = adjacency_of(neighbors_);
    graph.entries = entries_.data();
    graph.n_entries = entries_.shape(0);
    graph.max_width = std::max(graph.bottom.width, graph.n_entries);
    for (const auto& [vertices, neighbors] : upper_) {
      require(vertices.shape(0) == neighbors.shape(0), "a neighbour list per vertex of a layer");
      graph.upper.push_back({vertices.data(), adjacency_of(neighbors)});
      graph.max_width = std::max(graph.max_width, neighbors.shape(1));
    }
  }

  Matrix<std::int32_t> neighbors_;
  Array<std::int32_t> entries_;
  std::vector<UpperLayer> upper_;
  Matrix<float> routing_;
  std::optional<Array<float>> bias_;
  std::optional<Matrix<float>> query_matrix_;
  std::optional<Matrix<float>> original_;
  Searcher searcher_;
};

Output<float> score_rows(const Matrix<float>& rows, const Array<float>& query,
                         const std::string& scorer, const std::string& simd) {
  const Rows view = rows_of(rows, scorer, simd);
  if (query.shape(0) != view.width) {
    throw std::invalid_argument("expected a query padded like the rows");
  }
  std::vector<VertexId> ids(view.n);
  std::iota(ids.begin(), ids.end(), 0);
  auto [scores, array] = new_array<float>({view.n});
  view.score(query.data(), view.data, view.width, ids.data(), view.n, scores);
  return array;
}

}  // namespace
}  // namespace l2route

NB_MODULE(_core, m) {
  using l2route::PySearcher;
  m.doc() = "C++ core of l2route: counted scorers and the beam search.";
  m.def("simd_levels", &l2route::simd_levels,
        "Names of the SIMD kernels this machine can run, fastest first.");
  m.def("score_rows", &l2route::score_rows, "rows"_a, "query"_a, "scorer"_a, "simd"_a = "auto",
        "Score padded rows [n, width] against a padded query [width]; smaller is nearer.");
  nb::class_<PySearcher>(m, "Searcher", "Beam search over one graph in one routing space.")
      .def(nb::init<l2route::Matrix<std::int32_t>, l2route::Array<std::int32_t>,
                    std::vector<PySearcher::UpperLayer>, l2route::Matrix<float>, std::size_t,
                    const std::string&, std::optional<l2route::Array<float>>,
                    std::optional<l2route::Matrix<float>>, std::optional<l2route::Matrix<float>>,
                    std::size_t, const std::string&, const std::string&>(),
           nb::kw_only(), "neighbors"_a, "entries"_a, "upper"_a, "routing"_a, "routing_dim"_a,
           "scorer"_a, "bias"_a.none(), "query_matrix"_a.none(), "original"_a.none(), "dim"_a,
           "metric_scorer"_a, "simd"_a = "auto")
      .def("search", &PySearcher::search, nb::kw_only(), "queries"_a, "k"_a, "routing"_a, "beam"_a,
           "rerank"_a, "n_threads"_a,
           "Answer queries [n, dim]: ids, distances, n_routing, n_rerank, n_hops.")
      .def("trace", &PySearcher::trace, nb::kw_only(), "queries"_a, "k"_a, "routing"_a, "beam"_a,
           "rerank"_a, "n_threads"_a,
           "Search, and also return what was visited: offsets, vertices, hops.");
}
