// Sums of many terms, as several independent sums, which hides the latency of additions.
#pragma once

#include <cstddef>

namespace l2route {

inline constexpr std::size_t kSums = 8;

// Adds the sums up, in pairs; overwrites them.
inline double sum_of_sums(double* sums) {
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t s = 0; s < half; ++s) sums[s] += sums[s + half];
  }
  return sums[0];
}

}  // namespace l2route
