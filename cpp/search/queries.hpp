// Checks of queries.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/lengths.hpp"

namespace l2route {

// Scores between vectors of at most this length are finite: squared distances, inner products, and
// sums of products of codes, which may be a thousand times larger at 133,144 dimensions.
inline constexpr double kMaxLength = 0x1p57;

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

}  // namespace l2route
