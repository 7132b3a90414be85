// Python's functions for training: hops to targets, rollouts and sums of gradients.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/graph.hpp"
#include "bindings/module.hpp"
#include "bindings/rows.hpp"
#include "bindings/without_gil.hpp"
#include "learn/hop_bfs.hpp"
#include "learn/lessons.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

using HopPlanes = nb::ndarray<const std::uint64_t, nb::shape<-1, kBlockWords, kHopPlanes>,
                              nb::c_contig, nb::device::cpu>;

// Hops from every vertex to each target of a block [n, words, planes].
Output<std::uint64_t> hops_to_targets(const PyGraph& graph, const Array<VertexId>& targets) {
  require(targets.shape(0) <= kBlockTargets, "at most 512 targets in a block");
  const Adjacency& adjacency = graph.view().bottom;
  auto [planes, array] = new_array<std::uint64_t>({adjacency.n, kBlockWords, kHopPlanes});
  without_gil([&, planes = planes](Pulse& pulse) {
    HopSearch(adjacency).run(targets.data(), targets.shape(0), planes, pulse);
  });
  return array;
}

// The target of each query: its block of hops, and its column in the block.
class PyTargets {
 public:
  PyTargets(std::vector<HopPlanes> blocks, Array<std::int32_t> block_of,
            Array<std::int32_t> column_of)
      : planes_(std::move(blocks)),
        block_of_(std::move(block_of)),
        column_of_(std::move(column_of)) {
    require(block_of_.shape(0) == column_of_.shape(0), "a block and a column per query");
    for (const HopPlanes& planes : planes_) {
      require(planes.shape(0) == planes_.front().shape(0), "blocks of equally many vertices");
      blocks_.push_back({planes.data()});
    }
  }

  std::size_t n_queries() const { return block_of_.shape(0); }
  std::size_t n_vertices() const { return planes_.empty() ? 0 : planes_.front().shape(0); }
  Targets view() const { return {blocks_.data(), block_of_.data(), column_of_.data()}; }

 private:
  std::vector<HopPlanes> planes_;
  Array<std::int32_t> block_of_;
  Array<std::int32_t> column_of_;
  std::vector<HopBlock> blocks_;
};

// offsets, vertices, gradients, routing, topk, n_steps, is_found, is_kept, gradient in query rows
using LessonArrays =
    std::tuple<Output<std::int64_t>, Output<VertexId>, Output<float>, Output<float>, Output<float>,
               Output<std::int32_t>, Output<bool>, Output<bool>, Output<float>>;

// An array with one value of each lesson.
template <class T>
Output<T> each(const std::vector<Lesson>& lessons, T Lesson::* member) {
  auto [values, array] = new_array<T>({lessons.size()});
  for (std::size_t i = 0; i < lessons.size(); ++i) values[i] = lessons[i].*member;
  return array;
}

LessonArrays arrays_of(const std::vector<Lesson>& lessons, Output<float> query_gradient) {
  const auto vertices_of = [](const Lesson& lesson) -> const auto& { return lesson.vertices; };
  const auto gradients_of = [](const Lesson& lesson) -> const auto& { return lesson.gradients; };
  const std::vector<std::int64_t> offsets =
      offsets_of(lessons, [](const Lesson& lesson) { return lesson.vertices.size(); });
  return {copied(offsets),
          joined<VertexId>(lessons, offsets.back(), vertices_of),
          joined<float>(lessons, offsets.back(), gradients_of),
          each(lessons, &Lesson::routing),
          each(lessons, &Lesson::topk),
          each(lessons, &Lesson::n_steps),
          each(lessons, &Lesson::is_found),
          each(lessons, &Lesson::is_kept),
          std::move(query_gradient)};
}

// Where walks start, and what finding that costs.
using Starts = std::tuple<Matrix<VertexId>, Array<std::int32_t>>;

void set_starts(const Starts& given, std::size_t budget, RolloutBatch& batch, GraphView& graph) {
  const auto& [vertices, costs] = given;
  require(vertices.shape(0) == batch.n && costs.shape(0) == batch.n,
          "starts and their cost for every query");
  require(std::all_of(costs.data(), costs.data() + batch.n,
                      [&](std::int32_t cost) { return cost >= 0 && std::size_t(cost) < budget; }),
          "starts that cost less than the budget");
  batch.starts = vertices.data();
  batch.n_starts = vertices.shape(1);
  batch.start_costs = costs.data();
  graph.max_width = std::max(graph.max_width, batch.n_starts);
}

// Walks, one per query, and the gradient of the objective in every visited score.
LessonArrays rollout(const PyGraph& graph, const PyRows& vertices, const Matrix<float>& queries,
                     const PyTargets& targets, const RolloutOptions& options,
                     const Array<std::int64_t>& query_ids, const Array<VertexId>& hidden,
                     bool with_query_gradient, std::size_t n_threads,
                     const std::optional<Starts>& starts) {
  const std::size_t n = queries.shape(0), n_vertices = graph.view().bottom.n;
  const Rows& rows = vertices.view();
  require(rows.element == Element::single && rows.kind == ScoreKind::inner_product,
          "rows of float32 scored by ip");
  require(rows.n == n_vertices, "a row for every vertex");
  require(queries.shape(1) == rows.width, "queries as wide as vertices' rows");
  require(n == 0 || targets.n_vertices() == n_vertices, "hops of every vertex");
  require(targets.n_queries() == n && query_ids.shape(0) == n && hidden.shape(0) == n,
          "a target, an id and a hidden vertex for every query");
  RolloutBatch batch{queries.data(), n, targets.view(), query_ids.data(), hidden.data()};
  GraphView view = graph.view();
  if (starts) set_starts(*starts, options.budget, batch, view);
  auto [gradient, gradient_array] = new_array<float>({with_query_gradient ? n : 0, rows.width});
  std::vector<Lesson> lessons;
  without_gil([&, gradient = gradient](Pulse& pulse) {
    lessons = run_rollouts(view, rows, batch, options, n_threads,
                           with_query_gradient ? gradient : nullptr, pulse);
  });
  return arrays_of(lessons, std::move(gradient_array));
}

// Gradient in the vertices' rows and biases: sums over visits in the order of queries.
std::tuple<Output<float>, Output<float>> vertex_gradient(const Array<std::int64_t>& offsets,
                                                         const Array<VertexId>& vertices,
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

void bind_rollout(nb::module_& m) {
  nb::class_<PyTargets>(m, "Targets", "Hops to one target per query, by block and column.")
      .def(nb::init<std::vector<HopPlanes>, Array<std::int32_t>, Array<std::int32_t>>(), "blocks"_a,
           "block_of"_a, "column_of"_a);
  nb::class_<RolloutOptions>(m, "RolloutOptions",
                             "How walks of a rollout are sampled and weighted.")
      .def(nb::init<std::size_t, std::size_t, float, float, float, float, bool, std::uint64_t>(),
           nb::kw_only(), "budget"_a, "k"_a, "temperature"_a, "routing_weight"_a, "topk_weight"_a,
           "topk_sharpness"_a, "teacher_forcing"_a, "seed"_a);
  m.def("rollout", &rollout, "graph"_a, "vertices"_a, "queries"_a, "targets"_a, "options"_a,
        nb::kw_only(), "query_ids"_a, "hidden"_a, "with_query_gradient"_a, "n_threads"_a,
        "starts"_a.none() = nb::none(),
        "Walk and differentiate the objective: offsets, vertices, gradients, routing, topk, "
        "n_steps, is_found, "
        "is_kept, gradient in query rows. starts: where walks start [n, n_starts], padded with −1, "
        "and what finding that costs in scores [n]; none for the entry points of the graph.");
}

}  // namespace

void bind_learn(nb::module_& m) {
  m.def("hops_to_targets", &hops_to_targets, "graph"_a, "targets"_a,
        "Hops from every vertex to up to 512 targets, bit-sliced [n, 8, 4].");
  bind_rollout(m);
  m.def("vertex_gradient", &vertex_gradient, nb::kw_only(), "offsets"_a, "vertices"_a,
        "gradients"_a, "query_rows"_a, "n_vertices"_a, "n_threads"_a,
        "Gradient in vertex rows [n, width] and biases [n].");
}

}  // namespace l2route
