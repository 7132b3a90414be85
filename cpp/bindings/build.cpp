// Python's functions that change graphs.
#include <cstddef>
#include <cstdint>

#include "bindings/graph.hpp"
#include "bindings/module.hpp"
#include "bindings/rows.hpp"
#include "bindings/without_gil.hpp"
#include "build/prune.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

Output<VertexId> breadth_first_order(const PyGraph& graph) {
  const GraphView& view = graph.view();
  auto [order, array] = new_array<VertexId>({view.bottom.n});
  without_gil([&, order = order](Pulse& pulse) {
    breadth_first(view.bottom, view.entries, view.n_entries, order, pulse);
  });
  return array;
}

Output<VertexId> pruned_lists(const PyRows& rows, const Matrix<VertexId>& candidates,
                              std::size_t degree, float alpha, std::size_t n_threads) {
  const Rows& view = rows.view();
  require(view.element == Element::single && view.kind == ScoreKind::l2,
          "rows of float32 scored by l2");
  require(candidates.shape(0) == view.n, "candidates of every row");
  require(degree > 0, "a degree of at least 1");
  auto [lists, array] = new_array<VertexId>({view.n, degree});
  without_gil([&, lists = lists](Pulse& pulse) {
    prune_lists(view, adjacency_of(candidates), degree, alpha, n_threads, lists, pulse);
  });
  return array;
}

}  // namespace

void bind_build(nb::module_& m) {
  m.def("breadth_first_order", &breadth_first_order, "graph"_a,
        "Vertices in the order of a breadth-first search from the entries [n].");
  m.def("pruned_lists", &pruned_lists, nb::kw_only(), "rows"_a, "candidates"_a, "degree"_a,
        "alpha"_a, "n_threads"_a,
        "Prune candidates [n, width] by l2, add reverse edges, and return lists [n, degree].");
}

}  // namespace l2route
