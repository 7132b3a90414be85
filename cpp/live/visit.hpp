// What a search has to know of an index that changes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
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
    n_updates_ = store_->n_updates().load();
    n_dead_ = store_->n_dead();
    live_.labels = store_->labels;
    live_.count = n_dead_ > 0 ? store_->n_live() : 0;
  }

  bool is_living() const { return store_ != nullptr; }

  // Whether walks may meet slots that were deleted before the search began.
  bool meets_dead() const { return n_dead_ > 0; }

  // The filter that live slots pass.
  const Filter& live_slots() const { return live_; }

  // Lets answers with an id that is in two slots be noticed.
  void watch(Answers& answers) const {
    if (store_ == nullptr) return;
    answers.n_updates = &store_->n_updates();
    answers.since = n_updates_;
  }

 private:
  const Store* const store_;
  std::optional<Readers::Guard> reading_;
  std::uint64_t n_updates_ = 0;
  std::size_t n_dead_ = 0;
  Filter live_;
};

}  // namespace l2route
