// Checks of queries, and their normalisation for cosine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/sums.hpp"

namespace l2route {

// Scores between vectors of at most this length are finite: squared distances, inner products, and
// sums of products of codes, which may be a thousand times larger at 133,144 dimensions.
inline constexpr double kMaxLength = 0x1p57;

// In double precision, where squares of floats neither overflow nor underflow.
inline double squared_length(const float* vector, std::size_t dim) {
  double sums[kSums] = {};
  std::size_t j = 0;
  for (; j + kSums <= dim; j += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += double{vector[j + s]} * vector[j + s];
  }
  for (; j < dim; ++j) sums[0] += double{vector[j]} * vector[j];
  return sum_of_sums(sums);
}

// Throws at the first row that is not finite or, unless `is_any_length`, longer than kMaxLength.
inline void check_queries(const float* queries, std::size_t n, std::size_t dim,
                          bool is_any_length) {
  for (std::size_t i = 0; i < n; ++i) {
    const double square = squared_length(queries + i * dim, dim);
    if (square <= kMaxLength * kMaxLength || (is_any_length && std::isfinite(square))) continue;
    const std::string row = " in row " + std::to_string(i);
    if (!std::isfinite(square)) {
      throw std::invalid_argument("expected queries to be finite float32, got NaN or inf" + row);
    }
    char lengths[80];
    std::snprintf(lengths, sizeof lengths, "%g, got %g", kMaxLength, std::sqrt(square));
    throw std::invalid_argument("expected queries of a length of at most " + std::string(lengths) +
                                row);
  }
}

// Scales a vector to length 1; a zero vector stays zero.
inline void normalize(const float* vector, std::size_t dim, float* unit) {
  const double length = std::sqrt(squared_length(vector, dim));
  std::transform(vector, vector + dim, unit, [length](float value) {
    return length > 0 ? static_cast<float>(value / length) : 0.0f;
  });
}

}  // namespace l2route
