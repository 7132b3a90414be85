// Rows of routing or original vectors of any element type, and the scorer that counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/blocks.hpp"
#include "kernels/codes.hpp"
#include "kernels/distance.hpp"
#include "kernels/keys.hpp"
#include "kernels/rotation.hpp"

namespace l2route {

inline constexpr std::size_t kShortRow = kCacheLine;  // bytes

inline std::size_t row_bytes(Element element, std::size_t width) {
  if (is_code(element)) return width * code_bits(element) / 8;
  return width * (element == Element::half ? sizeof(Half) : sizeof(float));
}

// Padded rows with the kernels that score them and add them up.
struct Rows {
  const void* data = nullptr;
  std::size_t n = 0;
  std::size_t width = 0;  // elements in a row, a multiple of row_lanes
  Element element = Element::single;
  std::size_t bytes = 0;  // of a row
  ScoreRows score = nullptr;
  AddRows add = nullptr;        // of rows of floats
  const float* bias = nullptr;  // added to a row's inner product, so subtracted from its score
  Codes codes{};                // of rows of codes
  EncodeQuery encode = nullptr;
  Rotate rotate = nullptr;
  const Rows* near = nullptr;  // copies of every vertex's neighbours' rows, list by list
  ScoreKind kind = ScoreKind::l2;
  ScoreBlock score_block = nullptr;  // the same scores against several queries
  NearKeys near_keys = nullptr;      // of what was scored

  const float* floats() const { return static_cast<const float*>(data); }

  // Rows of more than one line go into the second-level cache: those of a whole neighbour list
  // exceed the few outstanding misses of the first level, which made searches up to a third slower.
  // Always inlined: GCC treats a function that only prefetches as one without effect and drops
  // calls of it that were not inlined.
  [[gnu::always_inline]] void prefetch(VertexId id) const {
    const char* row = static_cast<const char*>(data) + static_cast<std::size_t>(id) * bytes;
    if (bytes <= kShortRow) {
      for (std::size_t j = 0; j < bytes; j += kCacheLine) __builtin_prefetch(row + j, 0, 3);
    } else {
      for (std::size_t j = 0; j < bytes; j += kCacheLine) __builtin_prefetch(row + j, 0, 2);
    }
  }
};

inline Rows make_rows(const void* data, std::size_t n, std::size_t width, Element element,
                      ScoreKind kind, const std::string& simd) {
  const std::string level = choose_level(simd);
  Rows rows{data, n, width, element, row_bytes(element, width), nullptr, add_kernel(level)};
  rows.kind = kind;
  rows.encode = encode_kernel(level);
  rows.rotate = rotate_kernel(level);
  rows.near_keys = near_keys_kernel(level);
  const bool is_l2 = kind == ScoreKind::l2;
  if (element == Element::code) {
    rows.score = code_kernel<8>(level);
    rows.score_block = code_block_kernel<8>(level);
  } else if (element == Element::half_code) {
    rows.score = code_kernel<4>(level);
    rows.score_block = code_block_kernel<4>(level);
  } else if (element == Element::quarter_code) {
    rows.score = code_kernel<2>(level);
    rows.score_block = code_block_kernel<2>(level);
  } else if (element == Element::half) {
    rows.score = is_l2 ? float_kernel<ScoreKind::l2, Half>(level)
                       : float_kernel<ScoreKind::inner_product, Half>(level);
    rows.score_block = is_l2 ? float_block_kernel<ScoreKind::l2, Half>(level)
                             : float_block_kernel<ScoreKind::inner_product, Half>(level);
  } else {
    rows.score = is_l2 ? float_kernel<ScoreKind::l2, float>(level)
                       : float_kernel<ScoreKind::inner_product, float>(level);
    rows.score_block = is_l2 ? float_block_kernel<ScoreKind::l2, float>(level)
                             : float_block_kernel<ScoreKind::inner_product, float>(level);
  }
  return rows;
}

// Scores rows for one query and counts every score computed. The query is of floats, padded like
// the rows; `codes` is a buffer for the query in codes.
class Scorer {
 public:
  Scorer(const Rows& rows, const float* query, std::vector<std::int8_t>* codes = nullptr)
      : rows_(rows), query_(query) {
    if (!is_code(rows.element)) return;
    codes->resize(rows.width);
    code_query_ = rows.encode(query, rows.codes, rows.width, codes->data());
    query_ = &code_query_;
  }
  Scorer(const Scorer&) = delete;
  Scorer& operator=(const Scorer&) = delete;

  void score(const VertexId* ids, std::size_t n, float* scores) { score(rows_, ids, n, scores); }

  // The same for other rows of the same element type and width.
  void score(const Rows& rows, const VertexId* ids, std::size_t n, float* scores) {
    rows.score(query_, rows.data, rows.width, ids, n, scores);
    finish(rows, ids, n, scores);
  }

  // Scores rows for several scorers of the same rows; those of scorer q from scores[q · stride] on,
  // where the stride is a multiple of kTile and at least n.
  static void score_block(Scorer* const* scorers, std::size_t n_scorers, const VertexId* ids,
                          std::size_t n, float* scores, std::size_t stride) {
    if (n_scorers == 1) {
      scorers[0]->score(ids, n, scores);
      return;
    }
    const Rows& rows = scorers[0]->rows_;
    const void* queries[kMaxBlock];
    for (std::size_t q = 0; q < n_scorers; ++q) queries[q] = scorers[q]->query_;
    rows.score_block(queries, n_scorers, rows.data, rows.width, ids, n, scores, stride);
    for (std::size_t q = 0; q < n_scorers; ++q)
      scorers[q]->finish(rows, ids, n, scores + q * stride);
  }
  static constexpr std::size_t kMaxBlock = 16;  // scorers at a time

  const Rows& rows() const { return rows_; }
  std::size_t n_computed() const { return n_computed_; }

  // Counts what was computed elsewhere for the same query.
  void charge(std::size_t n) { n_computed_ += n; }

 private:
  // Adds what kernels leave out, and counts.
  void finish(const Rows& rows, const VertexId* ids, std::size_t n, float* scores) {
    if (rows.bias != nullptr) {
      for (std::size_t i = 0; i < n; ++i) scores[i] += code_query_.shift - rows.bias[ids[i]];
    } else if (code_query_.shift != 0) {
      for (std::size_t i = 0; i < n; ++i) scores[i] += code_query_.shift;
    }
    n_computed_ += n;
  }

  const Rows& rows_;
  const void* query_;
  CodeQuery code_query_;
  std::size_t n_computed_ = 0;
};

}  // namespace l2route
