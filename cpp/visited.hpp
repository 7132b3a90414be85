// Which vertices a search has visited: one byte each, stamped with the search's number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace l2route {

class VisitedSet {
 public:
  // Forgets everything, at the cost of a pass over the stamps once in 255 searches.
  void reset(std::size_t n_vertices) {
    if (stamps_.size() < n_vertices) stamps_.resize(n_vertices, 0);
    if (++stamp_ == 0) {
      std::fill(stamps_.begin(), stamps_.end(), std::uint8_t{0});
      stamp_ = 1;
    }
  }

  bool contains(std::int32_t vertex) const {
    return stamps_[static_cast<std::size_t>(vertex)] == stamp_;
  }

  void insert(std::int32_t vertex) { stamps_[static_cast<std::size_t>(vertex)] = stamp_; }

 private:
  std::vector<std::uint8_t> stamps_;
  std::uint8_t stamp_ = 0;
};

}  // namespace l2route
