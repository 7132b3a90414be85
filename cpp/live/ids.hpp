// A hash table from ids to slots, of which lookups and erasures read one or two cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "live/links.hpp"

namespace l2route {

inline constexpr std::int64_t kNoId = -1;

// Linear probing, at most half full. Ids are any numbers but kNoId.
class SlotsById {
 public:
  std::size_t size() const { return n_; }

  // Makes room for n ids in all.
  void reserve(std::size_t n) {
    std::size_t capacity = kLeast;
    while (capacity < 2 * n) capacity *= 2;
    if (capacity > entries_.size()) rehash(capacity);
  }

  // The slot of an id, or null.
  const VertexId* find(std::int64_t id) const {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[place_of(id)];
    return entry.id == id ? &entry.slot : nullptr;
  }

  // Sets the slot of an id, and returns the one that it had, or kNone.
  VertexId set(std::int64_t id, VertexId slot) {
    reserve(n_ + 1);
    Entry& entry = entries_[place_of(id)];
    if (entry.id == id) return std::exchange(entry.slot, slot);
    entry = {id, slot};
    ++n_;
    return kNone;
  }

  // Removes an id that is there. Entries behind it move up, so that no gap ends a probe too early.
  void erase(std::int64_t id) {
    std::size_t gap = place_of(id);
    for (std::size_t at = next(gap); entries_[at].id != kNoId; at = next(at)) {
      const std::size_t home = hash(entries_[at].id);
      const bool is_behind_gap = ((at - home) & mask()) >= ((at - gap) & mask());
      if (is_behind_gap) {
        entries_[gap] = entries_[at];
        gap = at;
      }
    }
    entries_[gap].id = kNoId;
    --n_;
  }

 private:
  static constexpr std::size_t kLeast = 16;

  struct Entry {
    std::int64_t id = kNoId;
    VertexId slot = kNone;
  };

  std::size_t mask() const { return entries_.size() - 1; }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }

  // Consecutive ids, and ids that are multiples of a power of two, are spread over the table.
  std::size_t hash(std::int64_t id) const {
    auto bits = static_cast<std::uint64_t>(id);
    bits = (bits ^ (bits >> 32)) * 0x9E3779B97F4A7C15u;
    return (bits ^ (bits >> 32)) & mask();
  }

  // Where an id is, or would be.
  std::size_t place_of(std::int64_t id) const {
    std::size_t at = hash(id);
    while (entries_[at].id != id && entries_[at].id != kNoId) at = next(at);
    return at;
  }

  void rehash(std::size_t capacity) {
    const std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(capacity));
    for (const Entry& entry : before) {
      if (entry.id != kNoId) entries_[place_of(entry.id)] = entry;
    }
  }

  std::vector<Entry> entries_;
  std::size_t n_ = 0;
};

}  // namespace l2route
