// What insertions into a graph are given, checked.
#pragma once

#include <cstddef>

#include "bindings/arrays.hpp"
#include "bindings/rows.hpp"
#include "build/insert.hpp"

namespace l2route {

// Options that suit lists of this width.
inline const InsertOptions& checked(const InsertOptions& options, std::size_t width) {
  require(options.degree > 0 && options.degree <= width && options.trimmed > 0 &&
              options.trimmed <= width,
          "degrees from 1 to the length of lists");
  require(options.ef > 0 && options.n_candidates > 0, "a beam and candidates of at least 1");
  require(options.alpha >= 1 && options.trim_alpha >= 1, "alphas of at least 1");
  return options;
}

// Rows that lists can be pruned by.
inline const Rows& floats_of(const PyRows& rows) {
  require(!is_code(rows.view().element), "rows of float32 or float16 to prune by");
  return rows.view();
}

}  // namespace l2route
