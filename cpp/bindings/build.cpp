// Python's functions that build and change graphs.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/graph.hpp"
#include "bindings/insert.hpp"
#include "bindings/module.hpp"
#include "bindings/rows.hpp"
#include "bindings/without_gil.hpp"
#include "build/joins.hpp"
#include "build/prune.hpp"
#include "build/renew.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

using OptionalQueries = std::optional<Matrix<float>>;

Output<VertexId> breadth_first_order(const PyGraph& graph) {
  const GraphView& view = graph.view();
  auto [order, array] = new_array<VertexId>({view.bottom.n});
  without_gil([&, order = order](Pulse& pulse) {
    breadth_first(view.bottom, view.entries, view.n_entries, order, pulse);
  });
  return array;
}

Pruner pruner_of(const PyRows& floats, float alpha) {
  const Rows& rows = floats_of(floats);
  std::vector<VertexId> all(rows.kind == ScoreKind::inner_product ? rows.n : 0);
  std::iota(all.begin(), all.end(), 0);
  return Pruner(rows, alpha, longest_square(rows, all.data(), all.size()));
}

Output<VertexId> pruned_lists(const PyRows& rows, const Matrix<VertexId>& candidates,
                              std::size_t degree, float alpha, std::size_t n_threads) {
  const Rows& view = rows.view();
  require(candidates.shape(0) == view.n, "candidates of every row");
  require(degree > 0, "a degree of at least 1");
  const Pruner pruner = pruner_of(rows, alpha);
  auto [lists, array] = new_array<VertexId>({view.n, degree});
  without_gil([&, lists = lists](Pulse& pulse) {
    prune_lists(pruner, adjacency_of(candidates), degree, n_threads, lists, pulse);
  });
  return array;
}

Output<VertexId> mutual_lists(const PyRows& rows, const Matrix<VertexId>& found, float alpha,
                              std::size_t n_threads) {
  const Rows& view = rows.view();
  require(found.shape(0) == view.n, "a list of every row");
  const Pruner pruner = pruner_of(rows, alpha);
  auto [lists, array] = new_array<VertexId>({view.n, found.shape(1)});
  without_gil([&, lists = lists](Pulse& pulse) {
    make_mutual(pruner, adjacency_of(found), found.shape(1), n_threads, lists, pulse);
  });
  return array;
}

Output<VertexId> edges_lacking(const PyGraph& graph, const PyRows& rows,
                               const Matrix<VertexId>& nearest, std::size_t n_threads) {
  const Rows& view = floats_of(rows);
  require(view.kind == ScoreKind::l2 && view.n == graph.view().bottom.n,
          "a row of each vertex, scored by l2");
  require(nearest.shape(1) <= Neighborhood::kMaxSize, "at most 64 neighbours of a query");
  std::vector<Edge> edges;
  without_gil([&](Pulse& pulse) {
    edges = lacking_edges(graph.view().bottom, view, adjacency_of(nearest), n_threads, pulse);
  });
  auto [ends, array] = new_array<VertexId>({edges.size(), 2});
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ends[2 * i] = edges[i].first;
    ends[2 * i + 1] = edges[i].second;
  }
  return array;
}

class PyInserter {
 public:
  PyInserter(MutableMatrix<VertexId> lists, MutableArray<VertexId> parents,
             MutableArray<std::uint8_t> is_copy, std::shared_ptr<const PyRows> walked,
             std::shared_ptr<const PyRows> exact, std::vector<VertexId> entries,
             OptionalArray<std::int64_t> labels, const InsertOptions& options, float longest)
      : lists_(std::move(lists)),
        parents_(std::move(parents)),
        is_copy_(std::move(is_copy)),
        walked_(std::move(walked)),
        exact_(std::move(exact)),
        labels_(std::move(labels)) {
    const std::size_t n = lists_.shape(0), width = lists_.shape(1);
    require(width >= 2, "lists of at least 2 neighbours");
    require(parents_.shape(0) == n && is_copy_.shape(0) == n && walked_->view().n == n &&
                exact_->view().n == n && (!labels_ || labels_->shape(0) == n),
            "as many parents, copies, rows and labels as lists");
    inserter_.links = {lists_.data(), n, width, parents_.data(), is_copy_.data()};
    inserter_.walked = walked_->view();
    inserter_.exact = floats_of(*exact_);
    inserter_.options = checked(options, width);
    inserter_.entries = std::move(entries);
    inserter_.labels = labels_ ? labels_->data() : nullptr;
    inserter_.longest = longest;
  }

  void place(const Array<VertexId>& slots, const OptionalQueries& queries, std::size_t n_threads) {
    const float* from = queries_of(slots, queries);
    without_gil([&](Pulse& pulse) {
      inserter_.place(slots.data(), slots.shape(0), from, n_threads, pulse);
    });
  }

  void publish(const Array<VertexId>& slots, std::size_t n_threads) const {
    without_gil(
        [&](Pulse& pulse) { inserter_.publish(slots.data(), slots.shape(0), n_threads, pulse); });
  }

  Output<VertexId> renewed(const Array<VertexId>& vertices, const OptionalQueries& queries,
                           std::size_t ef, std::size_t n_candidates, std::size_t degree,
                           float alpha, std::size_t n_threads) const {
    const float* from = queries_of(vertices, queries);
    const std::size_t n = vertices.shape(0), width = inserter_.walked.width;
    std::vector<const float*> each(n, nullptr);
    for (std::size_t i = 0; from != nullptr && i < n; ++i) each[i] = from + i * width;
    const Finder finder{inserter_.whole_graph(), nullptr, inserter_.walked, inserter_.exact, ef};
    const Pruner pruner(inserter_.exact, alpha, inserter_.longest);
    auto [lists, array] = new_array<VertexId>({n, degree});
    without_gil([&, lists = lists](Pulse& pulse) {
      renew_lists(finder, pruner, {vertices.data(), each.data(), n}, n_candidates, degree,
                  n_threads, lists, pulse);
    });
    return array;
  }

  const std::vector<VertexId>& entries() const { return inserter_.entries; }
  void set_entries(std::vector<VertexId> entries) { inserter_.entries = std::move(entries); }
  float longest() const { return inserter_.longest; }

 private:
  const float* queries_of(const Array<VertexId>& slots, const OptionalQueries& queries) const {
    if (!queries) return nullptr;
    require(queries->shape(0) == slots.shape(0) && queries->shape(1) == inserter_.walked.width,
            "a query of each slot, padded like the walked rows");
    return queries->data();
  }

  MutableMatrix<VertexId> lists_;
  MutableArray<VertexId> parents_;
  MutableArray<std::uint8_t> is_copy_;
  std::shared_ptr<const PyRows> walked_;
  std::shared_ptr<const PyRows> exact_;
  OptionalArray<std::int64_t> labels_;
  Inserter inserter_;
};

void bind_inserter(nb::module_& m) {
  nb::class_<PyInserter>(m, "Inserter", "Inserts vertices into lists that others may be searching.")
      .def(nb::init<MutableMatrix<VertexId>, MutableArray<VertexId>, MutableArray<std::uint8_t>,
                    std::shared_ptr<const PyRows>, std::shared_ptr<const PyRows>,
                    std::vector<VertexId>, OptionalArray<std::int64_t>, const InsertOptions&,
                    float>(),
           nb::kw_only(), "lists"_a, "parents"_a, "is_copy"_a, "walked"_a, "exact"_a,
           "entries"_a = std::vector<VertexId>(), "labels"_a = nb::none(), "options"_a,
           "longest"_a = 0.0f)
      .def("place", &PyInserter::place, "slots"_a, "queries"_a = nb::none(), nb::kw_only(),
           "n_threads"_a,
           "Choose lists and parents of new slots, whose rows are written; nothing leads to them.")
      .def("publish", &PyInserter::publish, "slots"_a, nb::kw_only(), "n_threads"_a,
           "Add the edges that lead to placed slots.")
      .def("renewed", &PyInserter::renewed, "vertices"_a, "queries"_a = nb::none(), nb::kw_only(),
           "ef"_a, "n_candidates"_a, "degree"_a, "alpha"_a, "n_threads"_a,
           "New lists [n, degree] of vertices, from walks on the graph as it is.")
      .def_prop_rw("entries", &PyInserter::entries, &PyInserter::set_entries,
                   "Entry vertices; the first is the root of the tree.")
      .def_prop_ro("longest", &PyInserter::longest,
                   "Squared length of the longest vector, for rows scored by ip.");
}

}  // namespace

void bind_build(nb::module_& m) {
  m.def("breadth_first_order", &breadth_first_order, "graph"_a,
        "Vertices in the order of a breadth-first search from the entries [n].");
  m.def("pruned_lists", &pruned_lists, nb::kw_only(), "rows"_a, "candidates"_a, "degree"_a,
        "alpha"_a, "n_threads"_a,
        "Prune candidates [n, width], add reverse edges, and return lists [n, degree].");
  m.def("mutual_lists", &mutual_lists, nb::kw_only(), "rows"_a, "lists"_a, "alpha"_a, "n_threads"_a,
        "Add reverse edges to lists [n, degree], and prune those that overflow.");
  m.def(
      "lacking_edges", &edges_lacking, "graph"_a, nb::kw_only(), "rows"_a, "nearest"_a,
      "n_threads"_a,
      "Edges [m, 2] by which the nearest neighbours [n, depth] of each query would all reach each "
      "other, query by query.");
  bind_inserter(m);
}

}  // namespace l2route
