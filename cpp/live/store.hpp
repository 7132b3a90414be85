// The slots of a living index: which are in use, by which id, and which can be used again.
//
// A slot is live (it has an id), dead (deleted, but walks still pass through it) or free. Dead
// slots become free in stages: their tree children are adopted; when the readers from before have
// left, they are swept out of all lists; when the readers from before that have left, nothing can
// reach them. One thread at a time changes a store; `label`, `n_dead`, `n_live`, `n_updates` and
// `readers` are for any thread.
//
// The map of ids to slots has no lock, which a fork could copy while it is held: Python's lock
// protects it. `open`, `slot_of`, `take`, `kill` and `roll_back` are called with that lock held;
// all that runs without it (`place`, `publish`, `repair`, `mend_tree`, searches) leaves the map
// alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "build/insert.hpp"
#include "live/ids.hpp"
#include "live/links.hpp"
#include "live/repair.hpp"
#include "live/tree.hpp"
#include "threads/readers.hpp"

namespace l2route {

class Store {
 public:
  Links links;
  std::int64_t* labels = nullptr;  // [capacity]; -1 for slots that are not live
  VertexId* entries = nullptr;     // [n_entries], padded with -1
  std::size_t n_entries = 0;
  mutable Readers readers;  // searches
  mutable Readers holders;  // of slots: filters that were evaluated, streams between two pages

  // Takes over the arrays: the first n_slots slots are in use, the others empty.
  void open(std::size_t n_slots, float longest) {
    n_slots_ = n_slots;
    longest_ = longest;
    changed_.assign(links.capacity, 0);
    renewed_.assign(links.capacity, 0);
    links.changed = changed_.data();
    slots_.reserve(n_slots);
    for (std::size_t slot = 0; slot < n_slots; ++slot) {
      const auto vertex = static_cast<VertexId>(slot);
      if (labels[slot] != kNoId) {
        slots_.set(labels[slot], vertex);
      } else if (*links.row(vertex) >= 0 || links.parent(vertex) >= 0) {
        dead_.push_back(vertex);
      } else {
        free_.push_back(vertex);
      }
    }
    n_dead_ = dead_.size();
    n_live_ = slots_.size();
    relieve(links, n_slots);
  }

  std::int64_t label(VertexId slot) const {
    return __atomic_load_n(labels + static_cast<std::size_t>(slot), __ATOMIC_ACQUIRE);
  }

  // Dead slots that walks may meet.
  std::size_t n_dead() const { return n_dead_.load(); }
  std::size_t n_slots() const { return n_slots_; }
  std::size_t n_live() const { return n_live_.load(); }
  // Slots that `take` can give out without a larger store.
  std::size_t room() const { return free_.size() + links.capacity - n_slots_; }

  VertexId slot_of(std::int64_t id) const {
    const VertexId* const slot = slots_.find(id);
    return slot == nullptr ? kNone : *slot;
  }

  // Begins an insertion: slots are taken, placed and published, then all of it is committed or
  // rolled back. While ids are replaced, they are in two slots at once.
  void begin(bool replaces) {
    if (replaces) ++n_updates_;
  }

  // Gives a slot to an id; there has to be room. Nothing points to it yet, and it has no label:
  // what is written into its rows is for nobody to see.
  VertexId take(std::int64_t id) {
    VertexId slot = static_cast<VertexId>(n_slots_);
    if (free_.empty()) {
      ++n_slots_;
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    renewed_[static_cast<std::size_t>(slot)] = 1;
    taken_.emplace_back(id, slot);
    const VertexId before = slots_.set(id, slot);
    if (before != kNone) replaced_.push_back(before);
    n_live_ = slots_.size();
    return slot;
  }

  // Ends an insertion: slots whose ids are in other slots by now are dead. A search that saw only
  // the old slot does not find the id any more: wait for such searches before.
  void commit() {
    n_dead_ += replaced_.size();
    for (const VertexId slot : replaced_) {
      set_label(slot, kNoId);
      dead_.push_back(slot);
    }
    end();
  }

  // Undoes an insertion: published slots are dead, others free, and ids are where they were.
  void roll_back() {
    std::vector<VertexId> published;
    for (auto taken = taken_.rbegin(); taken != taken_.rend(); ++taken) {
      const auto [id, slot] = *taken;
      forget(id, slot);
      if (label(slot) == kNoId) {
        clear(slot);
        free_.push_back(slot);
      } else {
        published.push_back(slot);
      }
    }
    kill(published);
    for (const VertexId slot : replaced_) slots_.set(label(slot), slot);
    n_live_ = slots_.size();
    end();
  }

  // Deletes live slots: searches that begin from now on do not answer with them.
  void kill(const std::vector<VertexId>& slots) {
    n_dead_ += slots.size();
    for (const VertexId slot : slots) {
      forget(label(slot), slot);
      set_label(slot, kNoId);
      dead_.push_back(slot);
    }
  }

  // Waits until the searches that are running have ended, for a limited time.
  void await_searches(std::chrono::milliseconds most) const {
    const Readers::Epoch since = readers.now();
    const auto end = std::chrono::steady_clock::now() + most;
    while (!readers.has_passed(since) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Changes whenever ids begin or cease to be in two slots; odd while some may be.
  const std::atomic<std::uint64_t>& n_updates() const { return n_updates_; }

  // Removes dead slots from the graph, as far as readers permit.
  void repair(const Rows& exact, float alpha, std::size_t n_threads, Pulse& pulse) {
    const Pruner pruner(exact, alpha, longest_);
    const Repair repair(links, labels, entries, n_entries, pruner);
    mend_tree(repair);
    if (!adopted_.slots.empty() && readers.has_passed(adopted_.since)) {
      repair.sweep(n_slots_, n_threads, pulse);
      n_dead_ -= adopted_.slots.size();
      swept_.slots.insert(swept_.slots.end(), adopted_.slots.begin(), adopted_.slots.end());
      adopted_.slots.clear();
      swept_.since = readers.now();
      swept_.held_since = holders.now();
    }
    if (!swept_.slots.empty() && readers.has_passed(swept_.since) &&
        holders.has_passed(swept_.held_since)) {
      for (const VertexId slot : swept_.slots) clear(slot);
      free_.insert(free_.end(), swept_.slots.rbegin(), swept_.slots.rend());
      swept_.slots.clear();
    }
  }

  // Gives live parents to the children of dead slots: the tree's edges then join live ones.
  void mend_tree(const Rows& exact, float alpha) {
    const Pruner pruner(exact, alpha, longest_);
    mend_tree({links, labels, entries, n_entries, pruner});
  }

  // Chooses lists and parents of new slots, whose rows are written. The tree must have been mended.
  void place(const VertexId* slots, std::size_t n, const Rows& exact, const InsertOptions& options,
             std::size_t n_threads, Pulse& pulse) {
    Inserter inserter = inserter_for(exact, options);
    const bool is_first = inserter.entries.empty();
    inserter.place(slots, n, nullptr, n_threads, pulse);
    longest_ = inserter.longest;
    root_ = is_first ? inserter.entries.front() : kNone;
  }

  // Labels placed slots, and makes them reachable.
  void publish(const VertexId* slots, const std::int64_t* ids, std::size_t n, const Rows& exact,
               const InsertOptions& options, std::size_t n_threads, Pulse& pulse) {
    for (std::size_t i = 0; i < n; ++i) set_label(slots[i], ids[i]);
    inserter_for(exact, options).publish(slots, n, n_threads, pulse);
    if (root_ >= 0) store_id(entries, std::exchange(root_, kNone));
  }

  // Gives new neighbours to n slots, the next after those of the last call.
  void renew(std::size_t n, const Rows& exact, const InsertOptions& options, std::size_t n_threads,
             Pulse& pulse) {
    std::vector<VertexId> chosen;
    for (std::size_t i = 0; i < n_slots_ && chosen.size() < n; ++i) {
      if (next_renewed_ >= n_slots_) next_renewed_ = 0;
      const auto slot = static_cast<VertexId>(next_renewed_++);
      if (label(slot) != kNoId && !links.is_copy(slot)) chosen.push_back(slot);
    }
    inserter_for(exact, options).renew(chosen, n_threads, pulse);
  }

  // Slots whose lists or parents, and slots whose vectors or labels, have changed since the last
  // call.
  std::pair<std::vector<VertexId>, std::vector<VertexId>> take_changes() {
    return {taken(changed_), taken(renewed_)};
  }

  // Notes changes that were taken but not dealt with.
  void note_changes(const std::vector<VertexId>& changed, const std::vector<VertexId>& renewed) {
    for (const VertexId slot : changed) changed_[static_cast<std::size_t>(slot)] = 1;
    for (const VertexId slot : renewed) renewed_[static_cast<std::size_t>(slot)] = 1;
  }

 private:
  void end() {
    taken_.clear();
    replaced_.clear();
    if (n_updates_.load() % 2 == 1) ++n_updates_;
  }

  void mend_tree(const Repair& repair) {
    if (dead_.empty()) return;
    repair.adopt(dead_);
    adopted_.slots.insert(adopted_.slots.end(), dead_.begin(), dead_.end());
    adopted_.since = readers.now();
    dead_.clear();
  }

  Inserter inserter_for(const Rows& exact, const InsertOptions& options) const {
    Inserter inserter;
    inserter.links = links;
    inserter.walked = exact;
    inserter.exact = exact;
    inserter.options = options;
    inserter.entries.assign(entries, std::find(entries, entries + n_entries, kNone));
    inserter.labels = labels;
    inserter.longest = longest_;
    return inserter;
  }

  struct Waiting {
    std::vector<VertexId> slots;
    Readers::Epoch since = 0, held_since = 0;
  };

  void set_label(VertexId slot, std::int64_t id) {
    __atomic_store_n(labels + static_cast<std::size_t>(slot), id, __ATOMIC_RELEASE);
    renewed_[static_cast<std::size_t>(slot)] = 1;
  }

  void forget(std::int64_t id, VertexId slot) {
    if (slot_of(id) == slot) slots_.erase(id);
    n_live_ = slots_.size();
  }

  void clear(VertexId slot) {
    for (std::size_t i = 0; i < links.width; ++i) links.set(slot, i, kNone);
    links.set_parent(slot, kNone);
    links.set_copy(slot, false);
  }

  static std::vector<VertexId> taken(std::vector<std::uint8_t>& flags) {
    std::vector<VertexId> slots;
    for (std::size_t slot = 0; slot < flags.size(); ++slot) {
      if (flags[slot] != 0) slots.push_back(static_cast<VertexId>(slot));
      flags[slot] = 0;
    }
    return slots;
  }

  std::size_t n_slots_ = 0;
  std::size_t next_renewed_ = 0;
  float longest_ = 0;      // squared length of the longest vector so far, for inner products
  VertexId root_ = kNone;  // of an empty graph, placed but not published
  SlotsById slots_;        // of live ids; under Python's lock
  std::vector<std::pair<std::int64_t, VertexId>> taken_;  // by the insertion that is going on
  std::vector<VertexId> replaced_;                        // slots whose ids it gives to others
  std::vector<VertexId> dead_;                            // not adopted yet
  Waiting adopted_, swept_;
  std::vector<VertexId> free_;
  std::atomic<std::size_t> n_dead_{0};
  std::atomic<std::size_t> n_live_{0};
  std::atomic<std::uint64_t> n_updates_{0};
  std::vector<std::uint8_t> changed_, renewed_;
};

}  // namespace l2route
