// The ways to answer a query under a filter, and what each costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "search/filter.hpp"

namespace l2route {

enum class Way : std::uint8_t { any, scan, look, sieve };

// Nanoseconds, measured by benchmarks/filters.py --costs on vectors of 128 to 1,536 bytes: rows
// scored in a scan, where they are prefetched well ahead, and in a walk.
inline double scan_ns(std::size_t row_bytes) {
  return 5.0 + 0.025 * static_cast<double>(row_bytes);
}
inline double walk_ns(std::size_t row_bytes) { return 24.0 + scan_ns(row_bytes); }

// Where at least this share passes, walks go through the rest.
inline constexpr double kSieveShare = 0.95;
// Two hops must reach at least so many vertices that pass, or what passes falls apart.
inline constexpr double kFewestInTwoHops = 24;

// Scores that a walk with this beam width is expected to compute, where nobody has measured it.
inline double expected_scores(std::size_t beam) { return 150 + 12 * static_cast<double>(beam); }

}  // namespace l2route
