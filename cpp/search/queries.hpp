// Queries as they come: finite, not too long, and for cosine made as long as 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace l2route {

// Between vectors of this length all scores are finite: squared distances and products, and sums of
// products of codes, which of 133,144 dimensions may be a thousand times larger.
inline constexpr double kMaxLength = 0x1p57;

// In double precision, where no square of a float is too large or too small.
inline double squared_length(const float* vector, std::size_t dim) {
  constexpr std::size_t kSums = 8;  // side by side: an addition need not wait for the last one
  double sums[kSums] = {};
  std::size_t j = 0;
  for (; j + kSums <= dim; j += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += double{vector[j + s]} * vector[j + s];
  }
  for (; j < dim; ++j) sums[0] += double{vector[j]} * vector[j];
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t s = 0; s < half; ++s) sums[s] += sums[s + half];
  }
  return sums[0];
}

// Throws at the first row that has no score; `is_any_length` where rows are normalised.
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

// A vector of length 1 in the same direction; one without direction stays zero.
inline void normalize(const float* vector, std::size_t dim, float* unit) {
  const double length = std::sqrt(squared_length(vector, dim));
  std::transform(vector, vector + dim, unit, [length](float value) {
    return length > 0 ? static_cast<float>(value / length) : 0.0f;
  });
}

}  // namespace l2route
