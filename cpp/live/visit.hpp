// What a search has to know of an index that changes meanwhile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "live/store.hpp"
#include "search/filter.hpp"
#include "search/searcher.hpp"

namespace l2route {

// One search of a store, or of a constant index if the store is null. While it exists, no slot that
// it may see is used again.
class Visit {
 public:
  explicit Visit(const Store* store) : store_(store) {
    if (store_ == nullptr) return;
    reading_.emplace(store_->readers);
    n_updates_ = store_->n_updates();
    n_dead_ = store_->n_dead();
    live_.labels = store_->labels;
    live_.count = n_dead_ > 0 ? store_->n_live() : 0;
  }

  // Whether walks may meet slots that were deleted before the search began.
  bool meets_dead() const { return n_dead_ > 0; }

  // The filter that live slots pass.
  const Filter& live_slots() const { return live_; }

  // Whether ids were in two slots at some time of the search.
  bool may_have_seen_twice() const {
    return store_ != nullptr && (n_updates_ % 2 == 1 || n_updates_ != store_->n_updates());
  }

 private:
  const Store* const store_;
  std::optional<Readers::Guard> reading_;
  std::uint64_t n_updates_ = 0;
  std::size_t n_dead_ = 0;
  Filter live_;
};

// Leaves the first answer with each id; the answers of a query are shorter then.
inline void drop_repeated(const Answers& answers, std::size_t n_queries, std::size_t k) {
  for (std::size_t i = 0; i < n_queries; ++i) {
    std::int64_t* const ids = answers.ids + i * k;
    float* const distances = answers.distances + i * k;
    std::size_t n = 0;
    for (std::size_t rank = 0; rank < k && ids[rank] != kNoId; ++rank) {
      if (std::find(ids, ids + n, ids[rank]) != ids + n) continue;
      ids[n] = ids[rank];
      distances[n++] = distances[rank];
    }
    std::fill(ids + n, ids + k, kNoId);
    std::fill(distances + n, distances + k, std::numeric_limits<float>::infinity());
  }
}

}  // namespace l2route
