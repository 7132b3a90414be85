// Which vertices a search has visited: one byte each, stamped with the search's number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "types.hpp"

namespace l2route {

// One search's view of the set. A copy of it in a local variable stays in registers, where writing
// a stamp, which is a byte and might be part of anything, makes a compiler read members again.
struct Stamps {
  std::uint8_t* stamps;
  std::uint8_t stamp;

  // Whether the vertex is new.
  bool insert(VertexId vertex) const {
    std::uint8_t& own = stamps[static_cast<std::size_t>(vertex)];
    const bool is_new = own != stamp;
    own = stamp;
    return is_new;
  }
};

class VisitedSet {
 public:
  // Forgets everything, at the cost of a pass over the stamps once in 255 searches.
  Stamps reset(std::size_t n_vertices) {
    if (stamps_.size() < n_vertices) stamps_.resize(n_vertices, 0);
    if (++stamp_ == 0) {
      std::fill(stamps_.begin(), stamps_.end(), std::uint8_t{0});
      stamp_ = 1;
    }
    return {stamps_.data(), stamp_};
  }

 private:
  std::vector<std::uint8_t> stamps_;
  std::uint8_t stamp_ = 0;
};

}  // namespace l2route
