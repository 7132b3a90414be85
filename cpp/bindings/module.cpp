// Python's door to the core: check shapes, release the GIL, call. Values (ids, padding, finite
// floats) are checked once by the Python layer, which alone calls this module; those of queries
// here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/py_searcher.hpp"
#include "bindings/without_gil.hpp"
#include "build/prune.hpp"
#include "learn/hop_bfs.hpp"
#include "learn/lessons.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

// Hops from every vertex to each target of a block [n, words, planes].
Output<std::uint64_t> hops_to_targets(const Matrix<std::int32_t>& neighbors,
                                      const Array<std::int32_t>& targets) {
  require(targets.shape(0) <= kBlockTargets, "at most 512 targets in a block");
  auto [planes, array] = new_array<std::uint64_t>({neighbors.shape(0), kBlockWords, kHopPlanes});
  without_gil([&, planes = planes](Pulse& pulse) {
    HopSearch(adjacency_of(neighbors)).run(targets.data(), targets.shape(0), planes, pulse);
  });
  return array;
}

using HopPlanes = nb::ndarray<const std::uint64_t, nb::shape<-1, kBlockWords, kHopPlanes>,
                              nb::c_contig, nb::device::cpu>;
// offsets, vertices, gradients, routing, topk, n_steps, is_found, is_kept, gradient in query rows
using Lessons =
    std::tuple<Output<std::int64_t>, Output<std::int32_t>, Output<float>, Output<float>,
               Output<float>, Output<std::int32_t>, Output<bool>, Output<bool>, Output<float>>;

// Walks of the agent, one per query, and the gradient of the objective in every visited score.
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
  without_gil([&, gradient = gradient](Pulse& pulse) {
    parallel_for(n, n_threads, pulse, [&](std::size_t i) {
      RolloutTracer tracer(options, hops[static_cast<std::size_t>(block_of(i))],
                           static_cast<std::size_t>(target_of(i)),
                           static_cast<std::uint64_t>(query_ids(i)));
      run_rollout(graph, rows, query_rows.data() + i * rows.width, options, hidden(i), tracer,
                  lessons[i], with_query_gradient ? gradient + i * rows.width : nullptr);
    });
  });
  auto [offsets, offsets_array] = new_array<std::int64_t>({n + 1});
  offsets[0] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(lessons[i].vertices.size());
  }
  const auto n_visits = static_cast<std::size_t>(offsets[n]);
  auto [vertices, vertices_array] = new_array<std::int32_t>({n_visits});
  auto [gradients, gradients_array] = new_array<float>({n_visits});
  auto [routing, routing_array] = new_array<float>({n});
  auto [topk, topk_array] = new_array<float>({n});
  auto [n_steps, n_steps_array] = new_array<std::int32_t>({n});
  auto [is_found, is_found_array] = new_array<bool>({n});
  auto [is_kept, is_kept_array] = new_array<bool>({n});
  for (std::size_t i = 0; i < n; ++i) {
    std::copy(lessons[i].vertices.begin(), lessons[i].vertices.end(), vertices + offsets[i]);
    std::copy(lessons[i].gradients.begin(), lessons[i].gradients.end(), gradients + offsets[i]);
    routing[i] = lessons[i].routing;
    topk[i] = lessons[i].topk;
    n_steps[i] = lessons[i].n_steps;
    is_found[i] = lessons[i].is_found;
    is_kept[i] = lessons[i].is_kept;
  }
  return {offsets_array, vertices_array, gradients_array, routing_array, topk_array,
          n_steps_array, is_found_array, is_kept_array,   gradient_array};
}

// Gradient in the vertices' rows and biases: sums over visits in the order of queries.
std::tuple<Output<float>, Output<float>> vertex_gradient(const Array<std::int64_t>& offsets,
                                                         const Array<std::int32_t>& vertices,
                                                         const Array<float>& gradients,
                                                         const Matrix<float>& query_rows,
                                                         std::size_t n_vertices,
                                                         std::size_t n_threads) {
  require(offsets.shape(0) == query_rows.shape(0) + 1, "an offset for every query, and the end");
  require(vertices.shape(0) == gradients.shape(0), "a gradient for every visit");
  auto [rows, rows_array] = new_array<float>({n_vertices, query_rows.shape(1)});
  auto [bias, bias_array] = new_array<float>({n_vertices});
  without_gil([&, rows = rows, bias = bias](Pulse& pulse) {
    sum_by_vertex({offsets.data(), vertices.data(), gradients.data(), query_rows.shape(0)},
                  query_rows.data(), query_rows.shape(1), n_vertices, n_threads, rows, bias, pulse);
  });
  return {rows_array, bias_array};
}

Output<std::int32_t> breadth_first_order(const Matrix<std::int32_t>& neighbors,
                                         const Array<std::int32_t>& entries) {
  auto [order, array] = new_array<std::int32_t>({neighbors.shape(0)});
  without_gil([&, order = order](Pulse& pulse) {
    breadth_first(adjacency_of(neighbors), entries.data(), entries.shape(0), order, pulse);
  });
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
  without_gil([&, lists = lists](Pulse& pulse) {
    prune_lists(view, adjacency_of(candidates), degree, alpha, n_threads, lists, pulse);
  });
  return array;
}

Output<float> score_rows(const AnyMatrix& rows, const Array<float>& query,
                         const std::string& scorer, const std::string& simd, std::size_t code_bits,
                         const std::optional<Array<float>>& offset,
                         const std::optional<Array<float>>& scale) {
  Rows view = rows_of(rows, scorer, simd, code_bits);
  require(query.shape(0) == view.width, "a query padded like the rows");
  view.codes = codes_of(view, offset, scale);
  std::vector<VertexId> ids(view.n);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::int8_t> codes;
  auto [scores, array] = new_array<float>({view.n});
  Scorer(view, query.data(), &codes).score(ids.data(), view.n, scores);
  return array;
}

Output<float> normalized(const Matrix<float>& queries) {
  const std::size_t n = queries.shape(0), dim = queries.shape(1);
  check_queries(queries.data(), n, dim, true);
  auto [units, array] = new_array<float>({n, dim});
  for (std::size_t i = 0; i < n; ++i) normalize(queries.data() + i * dim, dim, units + i * dim);
  return array;
}

}  // namespace
}  // namespace l2route

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using l2route::PyPlan;
  using l2route::PySearcher;
  l2route::Interpreter::own().attach();
  m.doc() = "C++ core of l2route: counted scorers and the beam search.";
  m.def("simd_levels", &l2route::simd_levels,
        "Names of the SIMD kernels this machine can run, fastest first.");
  m.def("score_rows", &l2route::score_rows, "rows"_a, "query"_a, "scorer"_a, "simd"_a = "auto",
        "code_bits"_a = 8, "offset"_a.none() = nb::none(), "scale"_a.none() = nb::none(),
        "Score padded rows [n, width] against a padded query [width]; smaller is nearer.");
  m.def("normalized", &l2route::normalized, "queries"_a,
        "Queries [n, dim] as a search by cosine scales them, to a length of 1.");
  m.def("breadth_first_order", &l2route::breadth_first_order, "neighbors"_a, "entries"_a,
        "Vertices in the order of a breadth-first search from the entries [n].");
  m.def("pruned_lists", &l2route::pruned_lists, nb::kw_only(), "rows"_a, "candidates"_a, "degree"_a,
        "alpha"_a, "n_threads"_a, "simd"_a = "auto",
        "Neighbour lists [n, degree] pruned by l2 out of candidates [n, width], both ways.");
  m.def("hops_to_targets", &l2route::hops_to_targets, "neighbors"_a, "targets"_a,
        "Hops from every vertex to up to 512 targets, bit-sliced [n, 8, 4].");
  m.def(
      "rollout", &l2route::rollout, nb::kw_only(), "neighbors"_a, "entries"_a, "upper"_a,
      "vertex_rows"_a, "bias"_a.none(), "query_rows"_a, "blocks"_a, "block_of"_a, "target_of"_a,
      "query_ids"_a, "hidden"_a, "budget"_a, "k"_a, "temperature"_a, "routing_weight"_a,
      "topk_weight"_a, "topk_sharpness"_a, "teacher_forcing"_a, "seed"_a, "with_query_gradient"_a,
      "n_threads"_a,
      "Walk as the agent: offsets, vertices, gradients, routing, topk, n_steps, is_found, is_kept, "
      "gradient in query rows.");
  m.def("vertex_gradient", &l2route::vertex_gradient, nb::kw_only(), "offsets"_a, "vertices"_a,
        "gradients"_a, "query_rows"_a, "n_vertices"_a, "n_threads"_a,
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
           "scorer"_a, "bias"_a.none(), "code_bits"_a, "offset"_a.none(), "scale"_a.none(),
           "origin"_a, "near"_a.none(), "near_bias"_a.none(), "query_matrix"_a.none(),
           "original"_a.none(), "dim"_a, "metric"_a, "simd"_a = "auto");
  nb::class_<PyPlan>(m, "Plan", "A search of which all is known but the queries.")
      .def(nb::init<const PySearcher&, std::optional<l2route::Array<std::int64_t>>, std::size_t,
                    std::size_t, std::size_t, std::size_t, float, std::size_t>(),
           nb::keep_alive<1, 2>(), "searcher"_a, "labels"_a.none(), "k"_a, "routing"_a, "beam"_a,
           "rerank"_a, "slack"_a, "n_threads"_a)
      .def("search", &PyPlan::search, "queries"_a.noconvert(),
           "Answer queries [n, dim] or [dim]: ids, distances, and counts of routing, rerank, hops.")
      .def("trace", &PyPlan::trace, "queries"_a.noconvert(),
           "Search, and also return what was visited: offsets, vertices, hops.");
}
