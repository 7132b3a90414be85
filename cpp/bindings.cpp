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
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hop_bfs.hpp"
#include "lessons.hpp"
#include "prune.hpp"
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

inline constexpr std::align_val_t kAlignment{kCacheLine};

// A numpy array that owns its memory and starts on a cache line.
template <class T>
std::pair<T*, Output<T>> new_array(std::vector<std::size_t> shape) {
  std::size_t n_bytes = sizeof(T);
  for (const std::size_t extent : shape) n_bytes *= extent;
  T* pointer = static_cast<T*>(::operator new(n_bytes, kAlignment));
  nb::capsule owner(pointer, [](void* p) noexcept { ::operator delete(p, kAlignment); });
  return {pointer, Output<T>(pointer, shape.size(), shape.data(), owner)};
}

ScoreKind score_kind(const std::string& name) {
  if (name == "l2") return ScoreKind::l2;
  if (name == "ip") return ScoreKind::inner_product;
  throw std::invalid_argument("expected scorer 'l2' or 'ip', got '" + name + "'");
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("expected " + what);
}

// Rows of any of the elements that there are kernels for.
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Element element_of(const AnyMatrix& matrix, std::size_t code_bits) {
  constexpr nb::dlpack::dtype half{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  if (matrix.dtype() == nb::dtype<float>()) return Element::single;
  if (matrix.dtype() == half) return Element::half;
  if (matrix.dtype() == nb::dtype<std::uint8_t>()) {
    require(code_bits == 4 || code_bits == 8, "codes of 4 or 8 bits");
    return code_bits == 4 ? Element::half_code : Element::code;
  }
  throw std::invalid_argument("expected rows of float32, float16 or uint8");
}

std::size_t padded(std::size_t dim, Element element = Element::single) {
  const std::size_t lanes = row_lanes(element);
  return (dim + lanes - 1) / lanes * lanes;
}

Rows rows_of(const AnyMatrix& matrix, const std::string& scorer, const std::string& simd,
             std::size_t code_bits = 8) {
  const Element element = element_of(matrix, code_bits);
  const std::size_t width = matrix.shape(1) * (element == Element::half_code ? 2 : 1);
  require(padded(width, element) == width,
          "rows padded to a multiple of 16 elements, or of 64 bytes of codes, got " +
              std::to_string(matrix.shape(1)));
  const ScoreKind kind = score_kind(scorer);
  require(!is_code(element) || kind == ScoreKind::inner_product, "codes scored by 'ip'");
  return make_rows(matrix.data(), matrix.shape(0), width, element, kind, simd);
}

CodeScale scale_of(const Rows& rows, const std::optional<Array<float>>& lowest,
                   const std::optional<Array<float>>& steps) {
  const bool is_coded = is_code(rows.element);
  require(is_coded == lowest.has_value() && is_coded == steps.has_value(),
          "lowest values and steps of codes, and of codes alone");
  if (!is_coded) return {};
  require(lowest->shape(0) == rows.width && steps->shape(0) == rows.width,
          "a lowest value and a step per element of a row");
  return {lowest->data(), steps->data()};
}

Adjacency adjacency_of(const Matrix<std::int32_t>& matrix) {
  return {matrix.data(), matrix.shape(0), matrix.shape(1)};
}

// An upper layer's vertices and their neighbours.
using UpperLayer = std::tuple<Array<std::int32_t>, Matrix<std::int32_t>>;

GraphView graph_of(const Matrix<std::int32_t>& neighbors, const Array<std::int32_t>& entries,
                   const std::vector<UpperLayer>& upper) {
  GraphView graph;
  graph.bottom = adjacency_of(neighbors);
  graph.entries = entries.data();
  graph.n_entries = entries.shape(0);
  graph.max_width = std::max(graph.bottom.width, graph.n_entries);
  for (const auto& [vertices, links] : upper) {
    require(vertices.shape(0) == links.shape(0), "a neighbour list per vertex of a layer");
    graph.upper.push_back({vertices.data(), adjacency_of(links)});
    graph.max_width = std::max(graph.max_width, links.shape(1));
  }
  return graph;
}

// ids, distances, n_routing, n_rerank, n_hops
using Found = std::tuple<Output<std::int64_t>, Output<float>, Output<std::int32_t>,
                         Output<std::int32_t>, Output<std::int32_t>>;
// offsets, vertices, hops
using TraceArrays = std::tuple<Output<std::int64_t>, Output<std::int32_t>, Output<std::int32_t>>;
using Traced = decltype(std::tuple_cat(std::declval<Found>(), std::declval<TraceArrays>()));

// Keeps the arrays that its searcher looks into alive.
class PySearcher {
 public:
  PySearcher(Matrix<std::int32_t> neighbors, Array<std::int32_t> entries,
             std::vector<UpperLayer> upper, AnyMatrix routing, std::size_t routing_dim,
             const std::string& scorer, std::optional<Array<float>> bias, std::size_t code_bits,
             std::optional<Array<float>> lowest, std::optional<Array<float>> steps, float origin,
             std::optional<AnyMatrix> near, std::optional<Array<float>> near_bias,
             std::optional<Matrix<float>> query_matrix, std::optional<AnyMatrix> original,
             std::size_t dim, const std::string& metric_scorer, const std::string& simd)
      : neighbors_(std::move(neighbors)),
        entries_(std::move(entries)),
        upper_(std::move(upper)),
        routing_(std::move(routing)),
        bias_(std::move(bias)),
        lowest_(std::move(lowest)),
        steps_(std::move(steps)),
        near_(std::move(near)),
        near_bias_(std::move(near_bias)),
        query_matrix_(std::move(query_matrix)),
        original_(std::move(original)) {
    const std::size_t n = neighbors_.shape(0);
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
    searcher_.routing_dim = routing_dim;
    searcher_.routing = rows_of(routing_, scorer, simd, code_bits);
    require(searcher_.routing.width == padded(routing_dim, searcher_.routing.element),
            "routing vectors padded to their width");
    if (bias_) searcher_.routing.bias = bias_->data();
    searcher_.routing.scale = scale_of(searcher_.routing, lowest_, steps_);
    searcher_.origin = origin;
    if (query_matrix_) searcher_.projection = rows_of(AnyMatrix(*query_matrix_), "ip", simd);
    if (original_) searcher_.original = rows_of(*original_, metric_scorer, simd);
    searcher_.graph = graph_of(neighbors_, entries_, upper_);
    if (near_) {
      const std::size_t n_places = n * neighbors_.shape(1);
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

  Found search(const Matrix<float>& queries, std::size_t k, std::size_t routing, std::size_t beam,
               std::size_t rerank, float slack, std::size_t n_threads) const {
    Batch batch(queries.shape(0), k);
    check(queries);
    {
      const nb::gil_scoped_release release;
      searcher_.search(queries.data(), queries.shape(0), {k, routing, beam, rerank, slack},
                       n_threads, batch.answers);
    }
    return batch.arrays();
  }

  Traced trace(const Matrix<float>& queries, std::size_t k, std::size_t routing, std::size_t beam,
               std::size_t rerank, float slack, std::size_t n_threads) const {
    const std::size_t n = queries.shape(0);
    Batch batch(n, k);
    check(queries);
    std::vector<RecordTrace> traces(n);
    {
      const nb::gil_scoped_release release;
      searcher_.search_traced(queries.data(), n, {k, routing, beam, rerank, slack}, n_threads,
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
    return std::tuple_cat(batch.arrays(), TraceArrays{offsets_array, vertices_array, hops_array});
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

  void check(const Matrix<float>& queries) const {
    require(queries.shape(1) == searcher_.dim, "queries [*, " + std::to_string(searcher_.dim) +
                                                   "], got [*, " +
                                                   std::to_string(queries.shape(1)) + "]");
  }

  Matrix<std::int32_t> neighbors_;
  Array<std::int32_t> entries_;
  std::vector<UpperLayer> upper_;
  AnyMatrix routing_;
  std::optional<Array<float>> bias_;
  std::optional<Array<float>> lowest_;
  std::optional<Array<float>> steps_;
  std::optional<AnyMatrix> near_;
  std::optional<Array<float>> near_bias_;
  Rows near_rows_;
  std::optional<Matrix<float>> query_matrix_;
  std::optional<AnyMatrix> original_;
  Searcher searcher_;
};

// Hops from every vertex to each target of a block [n, words, planes].
Output<std::uint64_t> hops_to_targets(const Matrix<std::int32_t>& neighbors,
                                      const Array<std::int32_t>& targets) {
  require(targets.shape(0) <= kBlockTargets, "at most 512 targets in a block");
  auto [planes, array] = new_array<std::uint64_t>({neighbors.shape(0), kBlockWords, kHopPlanes});
  const nb::gil_scoped_release release;
  HopSearch(adjacency_of(neighbors)).run(targets.data(), targets.shape(0), planes);
  return array;
}

using HopPlanes = nb::ndarray<const std::uint64_t, nb::shape<-1, kBlockWords, kHopPlanes>,
                              nb::c_contig, nb::device::cpu>;
// offsets, vertices, slopes, routing, topk, n_steps, is_found, is_kept, gradient in query rows
using Lessons =
    std::tuple<Output<std::int64_t>, Output<std::int32_t>, Output<float>, Output<float>,
               Output<float>, Output<std::int32_t>, Output<bool>, Output<bool>, Output<float>>;

// Walks of the agent, one per query, and the slope of the objective in every visited score.
Lessons rollout(const Matrix<std::int32_t>& neighbors, const Array<std::int32_t>& entries,
                const std::vector<UpperLayer>& upper, const Matrix<float>& vertex_rows,
                const std::optional<Array<float>>& bias, const Matrix<float>& query_rows,
                const std::vector<HopPlanes>& blocks, const Array<std::int32_t>& block_of,
                const Array<std::int32_t>& target_of, const Array<std::int64_t>& query_ids,
                const Array<std::int32_t>& hidden, std::size_t budget, std::size_t k,
                float temperature, float routing_weight, float topk_weight, float topk_sharpness,
                bool teacher_forcing, std::uint64_t seed, bool with_query_gradient,
                std::size_t n_threads) {
  const std::size_t n = query_rows.shape(0), n_vertices = neighbors.shape(0);
  Rows rows = rows_of(AnyMatrix(vertex_rows), "ip", "auto");
  require(vertex_rows.shape(0) == n_vertices && (!bias || bias->shape(0) == n_vertices),
          "a row and a bias for every vertex");
  require(query_rows.shape(1) == rows.width, "queries as wide as vertices' rows");
  require(block_of.shape(0) == n && target_of.shape(0) == n && query_ids.shape(0) == n &&
              hidden.shape(0) == n,
          "a block, a target, a number and a hidden vertex for every query");
  if (bias) rows.bias = bias->data();
  const GraphView graph = graph_of(neighbors, entries, upper);
  std::vector<HopBlock> hops;
  for (const HopPlanes& block : blocks) {
    require(block.shape(0) == n_vertices, "hops of every vertex");
    hops.push_back({block.data()});
  }
  const RolloutOptions options{
      budget, k, temperature, routing_weight, topk_weight, topk_sharpness, teacher_forcing, seed};
  std::vector<Lesson> lessons(n);
  auto [gradient, gradient_array] = new_array<float>({with_query_gradient ? n : 0, rows.width});
  {
    const nb::gil_scoped_release release;
    parallel_for(n, n_threads, [&](std::size_t i) {
      RolloutTracer tracer(options, hops[static_cast<std::size_t>(block_of(i))],
                           static_cast<std::size_t>(target_of(i)),
                           static_cast<std::uint64_t>(query_ids(i)));
      run_rollout(graph, rows, query_rows.data() + i * rows.width, options, hidden(i), tracer,
                  lessons[i], with_query_gradient ? gradient + i * rows.width : nullptr);
    });
  }
  auto [offsets, offsets_array] = new_array<std::int64_t>({n + 1});
  offsets[0] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(lessons[i].vertices.size());
  }
  const auto n_visits = static_cast<std::size_t>(offsets[n]);
  auto [vertices, vertices_array] = new_array<std::int32_t>({n_visits});
  auto [slopes, slopes_array] = new_array<float>({n_visits});
  auto [routing, routing_array] = new_array<float>({n});
  auto [topk, topk_array] = new_array<float>({n});
  auto [n_steps, n_steps_array] = new_array<std::int32_t>({n});
  auto [is_found, is_found_array] = new_array<bool>({n});
  auto [is_kept, is_kept_array] = new_array<bool>({n});
  for (std::size_t i = 0; i < n; ++i) {
    std::copy(lessons[i].vertices.begin(), lessons[i].vertices.end(), vertices + offsets[i]);
    std::copy(lessons[i].slopes.begin(), lessons[i].slopes.end(), slopes + offsets[i]);
    routing[i] = lessons[i].routing;
    topk[i] = lessons[i].topk;
    n_steps[i] = lessons[i].n_steps;
    is_found[i] = lessons[i].is_found;
    is_kept[i] = lessons[i].is_kept;
  }
  return {offsets_array, vertices_array, slopes_array,  routing_array, topk_array,
          n_steps_array, is_found_array, is_kept_array, gradient_array};
}

// Gradient in the vertices' rows and biases: sums over visits in the order of queries.
std::tuple<Output<float>, Output<float>> vertex_gradient(const Array<std::int64_t>& offsets,
                                                         const Array<std::int32_t>& vertices,
                                                         const Array<float>& slopes,
                                                         const Matrix<float>& query_rows,
                                                         std::size_t n_vertices,
                                                         std::size_t n_threads) {
  require(offsets.shape(0) == query_rows.shape(0) + 1, "an offset for every query, and the end");
  require(vertices.shape(0) == slopes.shape(0), "a slope for every visit");
  auto [rows, rows_array] = new_array<float>({n_vertices, query_rows.shape(1)});
  auto [bias, bias_array] = new_array<float>({n_vertices});
  {
    const nb::gil_scoped_release release;
    sum_by_vertex({offsets.data(), vertices.data(), slopes.data(), query_rows.shape(0)},
                  query_rows.data(), query_rows.shape(1), n_vertices, n_threads, rows, bias);
  }
  return {rows_array, bias_array};
}

Output<std::int32_t> breadth_first_order(const Matrix<std::int32_t>& neighbors,
                                         const Array<std::int32_t>& entries) {
  auto [order, array] = new_array<std::int32_t>({neighbors.shape(0)});
  const nb::gil_scoped_release release;
  breadth_first(adjacency_of(neighbors), entries.data(), entries.shape(0), order);
  return array;
}

Output<std::int32_t> pruned_lists(const Matrix<float>& rows, const Matrix<std::int32_t>& candidates,
                                  std::size_t degree, float alpha, std::size_t n_threads,
                                  const std::string& simd) {
  const std::size_t n = rows.shape(0), width = rows.shape(1);
  require(padded(width) == width, "rows padded to a multiple of 16 elements");
  require(candidates.shape(0) == n, "candidates of every row");
  require(degree > 0, "a degree of at least 1");
  const Rows view = make_rows(rows.data(), n, width, Element::single, ScoreKind::l2, simd);
  auto [lists, array] = new_array<std::int32_t>({n, degree});
  const nb::gil_scoped_release release;
  prune_lists(view, adjacency_of(candidates), degree, alpha, n_threads, lists);
  return array;
}

Output<float> score_rows(const AnyMatrix& rows, const Array<float>& query,
                         const std::string& scorer, const std::string& simd, std::size_t code_bits,
                         const std::optional<Array<float>>& lowest,
                         const std::optional<Array<float>>& steps) {
  Rows view = rows_of(rows, scorer, simd, code_bits);
  require(query.shape(0) == view.width, "a query padded like the rows");
  view.scale = scale_of(view, lowest, steps);
  std::vector<VertexId> ids(view.n);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::int8_t> codes;
  auto [scores, array] = new_array<float>({view.n});
  Scorer(view, query.data(), &codes).score(ids.data(), view.n, scores);
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
        "code_bits"_a = 8, "lowest"_a.none() = nb::none(), "steps"_a.none() = nb::none(),
        "Score padded rows [n, width] against a padded query [width]; smaller is nearer.");
  m.def("breadth_first_order", &l2route::breadth_first_order, "neighbors"_a, "entries"_a,
        "Vertices in the order of a breadth-first search from the entries [n].");
  m.def("pruned_lists", &l2route::pruned_lists, nb::kw_only(), "rows"_a, "candidates"_a, "degree"_a,
        "alpha"_a, "n_threads"_a, "simd"_a = "auto",
        "Neighbour lists [n, degree] pruned by l2 out of candidates [n, width], both ways.");
  m.def("hops_to_targets", &l2route::hops_to_targets, "neighbors"_a, "targets"_a,
        "Hops from every vertex to up to 512 targets, bit-sliced [n, 8, 4].");
  m.def("rollout", &l2route::rollout, nb::kw_only(), "neighbors"_a, "entries"_a, "upper"_a,
        "vertex_rows"_a, "bias"_a.none(), "query_rows"_a, "blocks"_a, "block_of"_a, "target_of"_a,
        "query_ids"_a, "hidden"_a, "budget"_a, "k"_a, "temperature"_a, "routing_weight"_a,
        "topk_weight"_a, "topk_sharpness"_a, "teacher_forcing"_a, "seed"_a, "with_query_gradient"_a,
        "n_threads"_a,
        "Walk as the agent: offsets, vertices, slopes, routing, topk, n_steps, is_found, is_kept, "
        "gradient in query rows.");
  m.def("vertex_gradient", &l2route::vertex_gradient, nb::kw_only(), "offsets"_a, "vertices"_a,
        "slopes"_a, "query_rows"_a, "n_vertices"_a, "n_threads"_a,
        "Gradient in vertex rows [n, width] and biases [n].");
  nb::class_<PySearcher>(m, "Searcher", "Beam search over one graph in one routing space.")
      .def(nb::init<l2route::Matrix<std::int32_t>, l2route::Array<std::int32_t>,
                    std::vector<l2route::UpperLayer>, l2route::AnyMatrix, std::size_t,
                    const std::string&, std::optional<l2route::Array<float>>, std::size_t,
                    std::optional<l2route::Array<float>>, std::optional<l2route::Array<float>>,
                    float, std::optional<l2route::AnyMatrix>, std::optional<l2route::Array<float>>,
                    std::optional<l2route::Matrix<float>>, std::optional<l2route::AnyMatrix>,
                    std::size_t, const std::string&, const std::string&>(),
           nb::kw_only(), "neighbors"_a, "entries"_a, "upper"_a, "routing"_a, "routing_dim"_a,
           "scorer"_a, "bias"_a.none(), "code_bits"_a, "lowest"_a.none(), "steps"_a.none(),
           "origin"_a, "near"_a.none(), "near_bias"_a.none(), "query_matrix"_a.none(),
           "original"_a.none(), "dim"_a, "metric_scorer"_a, "simd"_a = "auto")
      .def("search", &PySearcher::search, nb::kw_only(), "queries"_a, "k"_a, "routing"_a, "beam"_a,
           "rerank"_a, "slack"_a, "n_threads"_a,
           "Answer queries [n, dim]: ids, distances, n_routing, n_rerank, n_hops.")
      .def("trace", &PySearcher::trace, nb::kw_only(), "queries"_a, "k"_a, "routing"_a, "beam"_a,
           "rerank"_a, "slack"_a, "n_threads"_a,
           "Search, and also return what was visited: offsets, vertices, hops.");
}
