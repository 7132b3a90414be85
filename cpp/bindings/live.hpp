// `_core.Store`: the slots of a living index, which keep their arrays alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "bindings/arrays.hpp"
#include "live/store.hpp"

namespace l2route {

class PyStore {
 public:
  PyStore(MutableMatrix<VertexId> lists, MutableArray<VertexId> parents,
          MutableArray<std::uint8_t> copies, MutableArray<std::int64_t> labels,
          MutableArray<VertexId> entries, std::size_t n_slots, float longest)
      : lists_(std::move(lists)),
        parents_(std::move(parents)),
        copies_(std::move(copies)),
        labels_(std::move(labels)),
        entries_(std::move(entries)) {
    const std::size_t capacity = lists_.shape(0);
    require(parents_.shape(0) == capacity && labels_.shape(0) == capacity &&
                copies_.shape(0) == capacity,
            "a parent, a label and a flag for every list");
    require(n_slots <= capacity, "no more slots than lists");
    require(lists_.shape(1) >= 2 && entries_.shape(0) > 0, "lists and room for entries");
    store_.links = {lists_.data(), capacity, lists_.shape(1), parents_.data(), copies_.data()};
    store_.labels = labels_.data();
    store_.entries = entries_.data();
    store_.n_entries = entries_.shape(0);
    store_.open(n_slots, longest);
  }
  PyStore(const PyStore&) = delete;
  PyStore& operator=(const PyStore&) = delete;

  Store& store() { return store_; }
  const Store& store() const { return store_; }

 private:
  MutableMatrix<VertexId> lists_;
  MutableArray<VertexId> parents_;
  MutableArray<std::uint8_t> copies_;
  MutableArray<std::int64_t> labels_;
  MutableArray<VertexId> entries_;
  Store store_;
};

}  // namespace l2route
