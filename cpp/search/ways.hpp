// The ways to answer a query under a filter, and what each costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace l2route {

enum class Way : std::uint8_t { any, scan, look, sieve };

// Nanoseconds per row scored, after benchmarks/filters.py --costs on rows of 128 to 1,536 bytes, up
// to 20% of 100,000 passing: 8 to 9 (128), 14 to 15 (384), 13 to 18 (448), 33 to 76 (1,536) in
// scans; walks 29 to 62. Rows beyond the caches take up to three times as long.
inline double scan_ns(std::size_t row_bytes) {
  return 5.0 + 0.025 * static_cast<double>(row_bytes);
}
// The same where this many queries scan the same rows: 3.0 (128 bytes), 4.3 (384) and, with all
// that a query takes, 6 (448) were measured.
inline double shared_scan_ns(std::size_t row_bytes, std::size_t n_sharing) {
  return n_sharing < 4 ? scan_ns(row_bytes) : 2.4 + 0.005 * static_cast<double>(row_bytes);
}
inline double walk_ns(std::size_t row_bytes) { return 24.0 + scan_ns(row_bytes); }

// Looking through a neighbour list takes as long as so many scores of a walk.
inline constexpr std::size_t kScoresPerList = 2;

// Where at least this share passes, walks go through the rest, whatever they are expected to take.
inline constexpr double kSieveShare = 0.95;
// Walks on what passes are so many times longer where it is far from the query.
inline constexpr double kFarWork = 2;
// Two hops must reach at least so many vertices that pass, or what passes falls apart.
inline constexpr double kFewestInTwoHops = 24;

// What a scan of routing vectors takes beyond its rows: the query in codes, and a second ranking.
inline constexpr double kCodedScanNs = 500;

// Work, in scores, that a walk with this beam width is expected to be, where nobody has measured
// it.
inline double expected_work(std::size_t beam) { return 150 + 12 * static_cast<double>(beam); }

}  // namespace l2route
