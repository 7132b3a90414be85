// The ways to answer a query under a filter, and what each costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace l2route {

enum class Way : std::uint8_t { any, scan, look, sieve };

// Nanoseconds, measured by benchmarks/filters.py --costs on vectors of 128 to 1,536 bytes: rows
// scored in a scan, where they are prefetched well ahead, and in a walk.
inline double scan_ns(std::size_t row_bytes) {
  return 5.0 + 0.025 * static_cast<double>(row_bytes);
}
inline double walk_ns(std::size_t row_bytes) { return 24.0 + scan_ns(row_bytes); }

// Looking through a neighbour list takes as long as so many scores of a walk.
inline constexpr std::size_t kScoresPerList = 2;

// Where at least this share passes, walks go through the rest.
inline constexpr double kSieveShare = 0.95;
// Two hops must reach at least so many vertices that pass, or what passes falls apart.
inline constexpr double kFewestInTwoHops = 24;

// What a scan of routing vectors takes beyond its rows: the query in codes, and a second ranking.
inline constexpr double kCodedScanNs = 500;

// Work, in scores, that a walk with this beam width is expected to be, where nobody has measured
// it.
inline double expected_work(std::size_t beam) { return 150 + 12 * static_cast<double>(beam); }

}  // namespace l2route
