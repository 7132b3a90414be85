// Python's class for indexes that change.
#include "bindings/live.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/graph.hpp"
#include "bindings/insert.hpp"
#include "bindings/module.hpp"
#include "bindings/rows.hpp"
#include "bindings/without_gil.hpp"
#include "live/tree.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

std::vector<VertexId> slots_in(const Array<VertexId>& slots, const Store& store) {
  std::vector<VertexId> copy(slots.data(), slots.data() + slots.shape(0));
  for (const VertexId slot : copy) {
    require(slot >= 0 && static_cast<std::size_t>(slot) < store.n_slots(),
            "slots in use, got " + std::to_string(slot));
  }
  return copy;
}

Output<VertexId> slots_of(const PyStore& self, const Array<std::int64_t>& ids) {
  auto [slots, array] = new_array<VertexId>({ids.shape(0)});
  for (std::size_t i = 0; i < ids.shape(0); ++i) slots[i] = self.store().slot_of(ids.data()[i]);
  return array;
}

Output<std::int64_t> labels(const PyStore& self) {
  const std::size_t n = self.store().links.capacity;
  auto [labels, array] = new_array<std::int64_t>({n});
  for (std::size_t i = 0; i < n; ++i) labels[i] = self.store().label(static_cast<VertexId>(i));
  return array;
}

Output<VertexId> take(PyStore& self, const Array<std::int64_t>& ids) {
  require(self.store().room() >= ids.shape(0), "no more ids than there is room for");
  auto [slots, array] = new_array<VertexId>({ids.shape(0)});
  for (std::size_t i = 0; i < ids.shape(0); ++i) slots[i] = self.store().take(ids.data()[i]);
  return array;
}

const Rows& exact_in(const PyRows& rows, const Store& store) {
  require(rows.view().n == store.links.capacity, "a row for every slot");
  return floats_of(rows);
}

// A change that has begun is not interrupted: its pulse never stops it.
template <class Work>
void uninterrupted(const Work& work) {
  without_gil([&](Pulse&) {
    Pulse steady;
    work(steady);
  });
}

void repair(PyStore& self, const PyRows& exact, float alpha, std::size_t n_threads) {
  const Rows& rows = exact_in(exact, self.store());
  uninterrupted([&](Pulse& pulse) { self.store().repair(rows, alpha, n_threads, pulse); });
}

void mend_tree(PyStore& self, const PyRows& exact, float alpha) {
  const Rows& rows = exact_in(exact, self.store());
  uninterrupted([&](Pulse&) { self.store().mend_tree(rows, alpha); });
}

void place(PyStore& self, const Array<VertexId>& slots, const PyRows& exact,
           const InsertOptions& options, std::size_t n_threads) {
  Store& store = self.store();
  const std::vector<VertexId> chosen = slots_in(slots, store);
  const Rows& rows = exact_in(exact, store);
  const InsertOptions& how = checked(options, store.links.width);
  without_gil([&](Pulse& pulse) {
    store.place(chosen.data(), chosen.size(), rows, how, n_threads, pulse);
  });
}

void publish(PyStore& self, const Array<VertexId>& slots, const Array<std::int64_t>& ids,
             const PyRows& exact, const InsertOptions& options, std::size_t n_threads) {
  Store& store = self.store();
  require(ids.shape(0) == slots.shape(0), "an id per slot");
  const std::vector<VertexId> chosen = slots_in(slots, store);
  const Rows& rows = exact_in(exact, store);
  const InsertOptions& how = checked(options, store.links.width);
  uninterrupted([&](Pulse& pulse) {
    store.publish(chosen.data(), ids.data(), chosen.size(), rows, how, n_threads, pulse);
  });
}

void renew(PyStore& self, std::size_t n, const PyRows& exact, const InsertOptions& options,
           std::size_t n_threads) {
  Store& store = self.store();
  const Rows& rows = exact_in(exact, store);
  const InsertOptions& how = checked(options, store.links.width);
  uninterrupted([&](Pulse& pulse) { store.renew(n, rows, how, n_threads, pulse); });
}

void set_entries(PyStore& self, const Array<VertexId>& entries) {
  Store& store = self.store();
  require(entries.shape(0) <= store.n_entries, "no more entries than there is room for");
  const std::vector<VertexId> chosen = slots_in(entries, store);
  for (std::size_t i = 0; i < store.n_entries; ++i) {
    store_id(store.entries + i, i < chosen.size() ? chosen[i] : kNone);
  }
}

Output<VertexId> tree_parents(const PyGraph& graph, const OptionalArray<std::int64_t>& labels) {
  const GraphView& view = graph.view();
  require(!labels || labels->shape(0) == view.bottom.n, "a label per vertex");
  auto [parents, array] = new_array<VertexId>({view.bottom.n});
  std::size_t n_unreached = 0;
  without_gil([&, parents = parents](Pulse& pulse) {
    n_unreached = choose_parents(view, labels ? labels->data() : nullptr, parents, pulse);
  });
  require(n_unreached == 0, "every vertex to be reachable from the entries, got " +
                                std::to_string(n_unreached) + " that are not");
  return array;
}

std::tuple<Output<VertexId>, Output<VertexId>> take_changes(PyStore& self) {
  const auto [changed, renewed] = self.store().take_changes();
  return {copied(changed), copied(renewed)};
}

class PyReading {
 public:
  explicit PyReading(std::shared_ptr<const PyStore> store)
      : store_(std::move(store)), guard_(std::in_place, store_->store().holders) {}

  void end() { guard_.reset(); }

 private:
  const std::shared_ptr<const PyStore> store_;
  std::optional<Readers::Guard> guard_;
};

}  // namespace

void bind_live(nb::module_& m) {
  m.def("tree_parents", &tree_parents, "graph"_a, "labels"_a.none() = nb::none(),
        "A parent of every vertex that lists it [n], -1 for roots: a tree from the entries. "
        "Vertices labelled -1 need not be reachable.");
  nb::class_<InsertOptions>(m, "InsertOptions", "How neighbours of new slots are chosen.")
      .def(nb::init<std::size_t, std::size_t, std::size_t, std::size_t, float, float>(),
           nb::kw_only(), "ef"_a, "n_candidates"_a, "degree"_a, "trimmed"_a, "alpha"_a,
           "trim_alpha"_a);
  nb::class_<PyReading>(m, "Reading", "While it exists, no slot that it may see is used again.")
      .def(nb::init<std::shared_ptr<const PyStore>>(), "store"_a)
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Reading"))
      .def(
          "__exit__", [](PyReading& self, const nb::args&) { self.end(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  nb::class_<PyStore>(m, "Store", "Slots of an index that changes; one thread at a time.")
      .def(nb::init<MutableMatrix<VertexId>, MutableArray<VertexId>, MutableArray<std::uint8_t>,
                    MutableArray<std::int64_t>, MutableArray<VertexId>, std::size_t, float>(),
           nb::kw_only(), "lists"_a, "parents"_a, "copies"_a, "labels"_a, "entries"_a, "n_slots"_a,
           "longest"_a)
      .def_prop_ro("n_live", [](const PyStore& self) { return self.store().n_live(); })
      .def_prop_ro("n_dead", [](const PyStore& self) { return self.store().n_dead(); })
      .def_prop_ro("n_slots", [](const PyStore& self) { return self.store().n_slots(); })
      .def_prop_ro("room", [](const PyStore& self) { return self.store().room(); })
      .def("labels", &labels,
           "A copy of the labels of all slots, also while another thread changes them.")
      .def("slots_of", &slots_of, "ids"_a, "Slots of ids [n]; -1 for ids that are not there.")
      .def("take", &take, "ids"_a, "Slots for new ids [n].")
      .def(
          "begin", [](PyStore& self, bool replaces) { self.store().begin(replaces); }, "replaces"_a,
          "Begin an insertion, of new ids or of ids that are in other slots.")
      .def(
          "commit", [](PyStore& self) { self.store().commit(); },
          "End an insertion; slots whose ids it has given to others are dead.")
      .def(
          "roll_back", [](PyStore& self) { self.store().roll_back(); },
          "Undo an insertion that has begun and not ended; nothing otherwise.")
      .def(
          "kill",
          [](PyStore& self, const Array<VertexId>& slots) {
            self.store().kill(slots_in(slots, self.store()));
          },
          "slots"_a, "Delete live slots.")
      .def(
          "await_searches",
          [](const PyStore& self, std::size_t most) {
            uninterrupted(
                [&](Pulse&) { self.store().await_searches(std::chrono::milliseconds(most)); });
          },
          "most"_a, "Wait until the searches that are running have ended, at most so many ms.")
      .def("place", &place, "slots"_a, nb::kw_only(), "exact"_a, "options"_a, "n_threads"_a,
           "Choose lists and parents of new slots; nothing leads to them yet.")
      .def("publish", &publish, "slots"_a, "ids"_a, nb::kw_only(), "exact"_a, "options"_a,
           "n_threads"_a, "Label placed slots, and add the edges that lead to them.")
      .def("renew", &renew, "n"_a, nb::kw_only(), "exact"_a, "options"_a, "n_threads"_a,
           "Choose new neighbours for the next n slots.")
      .def("repair", &repair, "exact"_a, nb::kw_only(), "alpha"_a, "n_threads"_a,
           "Remove dead slots from the graph, as far as searches permit.")
      .def("mend_tree", &mend_tree, "exact"_a, nb::kw_only(), "alpha"_a,
           "Give live parents to the children of dead slots.")
      .def("set_entries", &set_entries, "entries"_a)
      .def(
          "note_changes",
          [](PyStore& self, const Array<VertexId>& changed, const Array<VertexId>& renewed) {
            self.store().note_changes(slots_in(changed, self.store()),
                                      slots_in(renewed, self.store()));
          },
          "changed"_a, "renewed"_a, "Note changes that were taken but not dealt with.")
      .def("take_changes", &take_changes,
           "Slots with changed lists, and slots with new vectors or labels, since the last call.");
}

}  // namespace l2route
