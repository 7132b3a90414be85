// Lengths of vectors, and vectors of length 1. All levels have the same result to the last bit: no
// level fuses a product with a sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/processor.hpp"
#include "kernels/sums.hpp"

namespace l2route {

// In double precision, where squares of floats neither overflow nor underflow.
[[gnu::always_inline]] inline double any_squared_length(const float* vector, std::size_t dim) {
  double sums[kSums] = {};
  std::size_t j = 0;
  for (; j + kSums <= dim; j += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += double{vector[j + s]} * vector[j + s];
  }
  for (; j < dim; ++j) sums[0] += double{vector[j]} * vector[j];
  return sum_of_sums(sums);
}

[[gnu::always_inline]] inline void divide_any(const float* vector, std::size_t dim, double divisor,
                                              float* quotients) {
  for (std::size_t j = 0; j < dim; ++j) quotients[j] = static_cast<float>(vector[j] / divisor);
}

namespace portable {
inline double squared_length(const float* vector, std::size_t dim) {
  return any_squared_length(vector, dim);
}
inline void divide(const float* vector, std::size_t dim, double divisor, float* quotients) {
  divide_any(vector, dim, divisor, quotients);
}
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
__attribute__((target("avx2"))) inline double squared_length(const float* vector, std::size_t dim) {
  return any_squared_length(vector, dim);
}
__attribute__((target("avx2"))) inline void divide(const float* vector, std::size_t dim,
                                                   double divisor, float* quotients) {
  divide_any(vector, dim, divisor, quotients);
}
}  // namespace avx2
#endif

inline double squared_length(const float* vector, std::size_t dim) {
#if defined(__x86_64__)
  if (processor().has_avx2) return avx2::squared_length(vector, dim);
#endif
  return portable::squared_length(vector, dim);
}

// Scales a vector to length 1; a zero vector stays zero.
inline void normalize(const float* vector, std::size_t dim, float* unit) {
  const double length = std::sqrt(squared_length(vector, dim));
  if (!(length > 0)) {
    std::fill_n(unit, dim, 0.0f);
    return;
  }
#if defined(__x86_64__)
  if (processor().has_avx2) return avx2::divide(vector, dim, length, unit);
#endif
  portable::divide(vector, dim, length, unit);
}

}  // namespace l2route
