// The best vertices that a search has visited, and which of them are expanded.
//
// Entries are keys. Both frontiers do the same: `pop` returns the best vertex not yet expanded
// among the `capacity` best visited, or nothing. A sorted array is faster at small capacities,
// heaps at large ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/keys.hpp"
#include "types.hpp"

namespace l2route {

class SortedFrontier {
 public:
  static constexpr bool kIsRanked = true;  // has access by rank
  static constexpr std::size_t kMaxCapacity = 512;

  void reset(std::size_t capacity) {
    capacity_ = capacity;
    size_ = next_ = 0;
    if (keys_.size() < capacity) keys_.resize(capacity);
  }

  // Adds fresh keys, in any order; sorts `fresh` in place.
  void push(Key* fresh, std::size_t n) {
    if (size_ == capacity_) {
      const auto is_worse = [worst = keys_[size_ - 1]](Key key) { return key > worst; };
      n = static_cast<std::size_t>(std::remove_if(fresh, fresh + n, is_worse) - fresh);
    }
    sort_few(fresh, n);
    merge(fresh, n);
  }

  // Merges fresh keys, ascending, into the array in one backward pass.
  void merge(const Key* fresh, std::size_t n) {
    Key* const keys = keys_.data();
    std::size_t n_old = size_;
    while (n_old + n > capacity_) --(n_old == 0 || fresh[n - 1] > keys[n_old - 1] ? n : n_old);
    size_ = n_old + n;
    std::size_t end = size_;
    while (n > 0 && n_old > 0) {
      if (n_old >= kStretch && keys[n_old - kStretch] > fresh[n - 1]) {
        n_old -= kStretch;
        end -= kStretch;
        Key stretch[kStretch];  // copied twice: a memmove of this size is a call
        std::memcpy(stretch, keys + n_old, sizeof(stretch));
        std::memcpy(keys + end, stretch, sizeof(stretch));
        continue;
      }
      const bool is_old = keys[n_old - 1] > fresh[n - 1];
      keys[--end] = is_old ? keys[n_old - 1] : fresh[n - 1];
      n_old -= is_old;
      n -= !is_old;
    }
    std::copy_n(fresh, n, keys);
    next_ = n > 0 ? 0 : std::min(next_, end);
  }

  // Drops entries beyond the limit, except the `kept` best.
  void forget_beyond(Key limit, std::size_t kept) {
    while (size_ > kept && keys_[size_ - 1] > limit) --size_;
    next_ = std::min(next_, size_);
  }

  // The first of the entries that were dropped just now.
  const Key* forgotten() const { return keys_.data() + size_; }

  // Merges keys that were put aside, expanded or not; sorts them in place.
  void restore(Key* keys, std::size_t n) {
    push(keys, n);
    while (next_ < size_ && (keys_[next_] & kExpanded) != 0) ++next_;
  }

  // The worst entry if no more are kept; otherwise no limit.
  Key worst() const { return size_ == capacity_ && size_ > 0 ? keys_[size_ - 1] : kNoLimit; }

  // Number of entries up to a limit.
  std::size_t n_within(Key limit) const {
    const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(size_);
    return static_cast<std::size_t>(std::upper_bound(keys_.begin(), end, limit) - keys_.begin());
  }

  // Makes room for n more entries, whatever the capacity was.
  void grow(std::size_t n) {
    if (size_ + n <= capacity_) return;
    capacity_ = std::max(size_ + n, 2 * capacity_);
    if (keys_.size() < capacity_) keys_.resize(capacity_);
  }

  std::size_t size() const { return size_; }
  bool is_full() const { return size_ == capacity_; }

  // The entry of a rank below size(); 0 is the best.
  Key at(std::size_t rank) const { return keys_[rank]; }

  // Expands the best vertex not yet expanded; nothing if there is none or it is beyond the limit.
  std::optional<VertexId> pop(Key limit = kNoLimit) {
    if (next_ == size_ || keys_[next_] > limit) return std::nullopt;
    const Key key = keys_[next_];
    keys_[next_] |= kExpanded;
    do ++next_;
    while (next_ < size_ && (keys_[next_] & kExpanded) != 0);
    return vertex_of(key);
  }

  std::optional<VertexId> peek() const {
    if (next_ == size_) return std::nullopt;
    return vertex_of(keys_[next_]);
  }

  // The `count` best visited, ascending; fewer if there are fewer.
  void best(std::size_t count, std::vector<Key>& out) const {
    out.assign(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(std::min(count, size_)));
  }

 private:
  static constexpr std::size_t kStretch = 16;  // entries moved at a time

  std::vector<Key> keys_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t next_ = 0;  // the best entry not expanded; size_ if there is none
};

class HeapFrontier {
 public:
  static constexpr bool kIsRanked = false;

  void reset(std::size_t capacity) {
    capacity_ = capacity;
    heap_.clear();
    kept_.clear();
  }

  void push(const Key* fresh, std::size_t n) {
    std::for_each(fresh, fresh + n, [this](Key key) {
      if (keep(key)) wait(key);
    });
  }

  void merge(const Key* fresh, std::size_t n) { push(fresh, n); }
  Key worst() const { return is_full() && !kept_.empty() ? kept_.front() : kNoLimit; }

  // The same where only `passing` count for the capacity and are among the best.
  void push(const Key* fresh, std::size_t n, const Key* passing, std::size_t n_passing) {
    std::for_each(passing, passing + n_passing, [this](Key key) { keep(key); });
    std::for_each(fresh, fresh + n, [this](Key key) {
      if (kept_.size() < capacity_ || key <= kept_.front()) wait(key);
    });
  }

  std::optional<VertexId> pop(Key = kNoLimit) {
    const std::optional<VertexId> vertex = peek();
    if (vertex) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    return vertex;
  }

  std::optional<VertexId> peek() const {
    if (heap_.empty() || (is_full() && heap_.front() > kept_.front())) return std::nullopt;
    return vertex_of(heap_.front());
  }

  std::size_t size() const { return kept_.size(); }
  bool is_full() const { return kept_.size() == capacity_; }

  void best(std::size_t count, std::vector<Key>& out) const {
    out.resize(std::min(count, kept_.size()));
    std::partial_sort_copy(kept_.begin(), kept_.end(), out.begin(), out.end());
  }

 private:
  // Adds a key to the best visited; returns whether it is one of them.
  bool keep(Key key) {
    if (kept_.size() == capacity_) {
      if (key >= kept_.front()) return false;
      std::pop_heap(kept_.begin(), kept_.end());
      kept_.back() = key;
      std::push_heap(kept_.begin(), kept_.end());
    } else {
      kept_.push_back(key);
      if (kept_.size() == capacity_) std::make_heap(kept_.begin(), kept_.end());
    }
    return true;
  }

  void wait(Key key) {
    heap_.push_back(key);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::size_t capacity_ = 0;
  std::vector<Key> heap_;  // min-heap of the vertices not expanded
  std::vector<Key> kept_;  // the best visited; a max-heap once it is full
};

// Two sorted arrays, for walks through vertices that do not pass a filter: `capacity` is that of
// the best that pass, and vertices wait to be expanded while they are better than the worst of
// those. How many wait is not limited otherwise.
class SievedFrontier {
 public:
  static constexpr bool kIsRanked = true;

  void reset(std::size_t capacity) {
    passed_.reset(capacity);
    waiting_.reset(2 * capacity);
  }

  void push(Key* fresh, std::size_t n, Key* passing, std::size_t n_passing) {
    passed_.push(passing, n_passing);
    waiting_.grow(n);
    waiting_.push(fresh, n);
    if (passed_.is_full()) waiting_.forget_beyond(passed_.at(passed_.size() - 1), 0);
  }

  void forget_beyond(Key limit, std::size_t kept) {
    passed_.forget_beyond(limit, kept);
    waiting_.forget_beyond(limit, 0);
  }

  std::optional<VertexId> pop(Key limit = kNoLimit) { return waiting_.pop(limit); }
  std::optional<VertexId> peek() const { return waiting_.peek(); }
  std::size_t size() const { return passed_.size(); }
  bool is_full() const { return passed_.is_full(); }
  Key at(std::size_t rank) const { return passed_.at(rank); }
  // The best of all that were visited, expanded or not, whether they pass or not.
  std::size_t n_waiting() const { return waiting_.size(); }
  Key waiting(std::size_t rank) const { return waiting_.at(rank); }
  void best(std::size_t count, std::vector<Key>& out) const { passed_.best(count, out); }

 private:
  SortedFrontier passed_;
  SortedFrontier waiting_;
};

}  // namespace l2route
