// The set of visited vertices: one byte each, stamped with the number of the search.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "types.hpp"

namespace l2route {

// One search's view of the set. Copy it into a local variable in loops: a byte may alias anything,
// so after each stamp written the compiler would read members from memory again.
struct Stamps {
  std::uint8_t* stamps;
  std::uint8_t stamp;

  bool contains(VertexId vertex) const { return stamps[static_cast<std::size_t>(vertex)] == stamp; }

  // Marks a vertex as visited; returns whether it was not.
  bool insert(VertexId vertex) const {
    std::uint8_t& own = stamps[static_cast<std::size_t>(vertex)];
    const bool is_new = own != stamp;
    own = stamp;
    return is_new;
  }
};

class VisitedSet {
 public:
  // Starts an empty set. Once in 255 searches this clears all stamps.
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
