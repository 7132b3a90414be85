// Scores of rows against several queries at once, so that a row is read once for all of them.
//
// Scores equal those of one query at a time to the last bit: the same sums are added up in the same
// order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/codes.hpp"
#include "kernels/distance.hpp"

namespace l2route {

inline constexpr std::size_t kTile = 4;  // queries, and rows, that are scored side by side

// Scores rows[ids[i]] against queries[q] for i < n and q < n_queries, into
// scores[q · stride + i]. The stride is a multiple of kTile and at least n; what is between the
// scores of two queries may be overwritten.
using ScoreBlock = void (*)(const void* const* queries, std::size_t n_queries, const void* rows,
                            std::size_t width, const VertexId* ids, std::size_t n, float* scores,
                            std::size_t stride);

// One query after another; the rows of a block stay in the cache.
template <ScoreRows score>
void score_in_turn(const void* const* queries, std::size_t n_queries, const void* rows,
                   std::size_t width, const VertexId* ids, std::size_t n, float* scores,
                   std::size_t stride) {
  for (std::size_t q = 0; q < n_queries; ++q) {
    score(queries[q], rows, width, ids, n, scores + q * stride);
  }
}

#if defined(__x86_64__)
namespace avx512 {
// Of four or fewer queries or rows, the last one is repeated.
template <class Item, class Get>
inline void fill_tile(Item* tile, std::size_t n, const Get& get) {
  for (std::size_t i = 0; i < kTile; ++i) tile[i] = get(std::min(i, n - 1));
}

// Adds up the lanes of 16 vectors, of each in the order of `sum_lanes`. Block b of the result has
// the sums of vectors b, 4 + b, 8 + b and 12 + b.
L2ROUTE_AVX512 inline __m512 sum_sixteen(const __m512* sums) {
  __m512 eight[8], four[4], two[2];
  for (std::size_t i = 0; i < 8; ++i) {
    const __m512 a = sums[2 * i], b = sums[2 * i + 1];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const __m512 a = four[2 * i], b = four[2 * i + 1];
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
  }
  return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88),
                       _mm512_shuffle_ps(two[0], two[1], 0xDD));
}

// The same of integers, which add up to the same in any order.
L2ROUTE_VNNI inline __m512i sum_sixteen(const __m512i* sums) {
  __m512i eight[8], four[4], two[2];
  for (std::size_t i = 0; i < 8; ++i) {
    const __m512i a = sums[2 * i], b = sums[2 * i + 1];
    eight[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xEE));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const __m512i a = four[2 * i], b = four[2 * i + 1];
    two[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  const __m512 a = _mm512_castsi512_ps(two[0]), b = _mm512_castsi512_ps(two[1]);
  return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                          _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
}

// Stores block q of the scores of a tile for each query q.
L2ROUTE_AVX512 inline void store_tile(__m512 scores, std::size_t n_queries, float* to,
                                      std::size_t stride) {
  _mm_storeu_ps(to, _mm512_castps512_ps128(scores));
  if (n_queries > 1) _mm_storeu_ps(to + stride, _mm512_extractf32x4_ps(scores, 1));
  if (n_queries > 2) _mm_storeu_ps(to + 2 * stride, _mm512_extractf32x4_ps(scores, 2));
  if (n_queries > 3) _mm_storeu_ps(to + 3 * stride, _mm512_extractf32x4_ps(scores, 3));
}

template <ScoreKind kind, class Element>
L2ROUTE_AVX512 inline __m512 score_tile(const float* const* queries, const Element* const* rows,
                                        std::size_t width) {
  __m512 sums[kTile * kTile];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (std::size_t j = 0; j < width; j += kLanes) {
    __m512 row[kTile];
    for (std::size_t r = 0; r < kTile; ++r) row[r] = load(rows[r] + j);
    for (std::size_t q = 0; q < kTile; ++q) {
      const __m512 query = _mm512_loadu_ps(queries[q] + j);
      for (std::size_t r = 0; r < kTile; ++r) {
        sums[kTile * r + q] = accumulate<kind>(sums[kTile * r + q], query, row[r]);
      }
    }
  }
  const __m512 scores = sum_sixteen(sums);
  return kind == ScoreKind::l2 ? scores : _mm512_sub_ps(_mm512_setzero_ps(), scores);
}

template <ScoreKind kind, class Element>
L2ROUTE_AVX512 void score_floats_block(const void* const* queries, std::size_t n_queries,
                                       const void* rows, std::size_t width, const VertexId* ids,
                                       std::size_t n, float* scores, std::size_t stride) {
  const auto* const from = static_cast<const Element*>(rows);
  for (std::size_t i = 0; i < n; i += kTile) {
    const Element* row[kTile];
    fill_tile(row, n - i,
              [&](std::size_t r) { return from + static_cast<std::size_t>(ids[i + r]) * width; });
    for (std::size_t q = 0; q < n_queries; q += kTile) {
      const float* query[kTile];
      fill_tile(query, n_queries - q,
                [&](std::size_t t) { return static_cast<const float*>(queries[q + t]); });
      store_tile(score_tile<kind>(query, row, width), n_queries - q, scores + q * stride + i,
                 stride);
    }
  }
}

template <unsigned bits>
L2ROUTE_VNNI inline __m512 score_code_tile(const CodeQuery* const* queries,
                                           const std::uint8_t* const* rows, std::size_t bytes) {
  using Layout = Packed<bits>;
  __m512i sums[kTile * kTile];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (std::size_t j = 0; j < bytes; j += kCodeLanes) {
    for (std::size_t part = 0; part < Layout::kPerByte; ++part) {
      __m512i row[kTile];
      for (std::size_t r = 0; r < kTile; ++r) {
        row[r] = part_of<bits>(_mm512_loadu_si512(rows[r] + j), part);
      }
      for (std::size_t q = 0; q < kTile; ++q) {
        const __m512i query =
            _mm512_loadu_si512(Layout::facing(queries[q]->codes, j) + part * kCodeLanes);
        for (std::size_t r = 0; r < kTile; ++r) {
          sums[kTile * r + q] = _mm512_dpbusd_epi32(sums[kTile * r + q], row[r], query);
        }
      }
    }
  }
  const __m512 scales =
      _mm512_set_ps(queries[3]->scale, queries[3]->scale, queries[3]->scale, queries[3]->scale,
                    queries[2]->scale, queries[2]->scale, queries[2]->scale, queries[2]->scale,
                    queries[1]->scale, queries[1]->scale, queries[1]->scale, queries[1]->scale,
                    queries[0]->scale, queries[0]->scale, queries[0]->scale, queries[0]->scale);
  const __m512 products = _mm512_mul_ps(scales, _mm512_cvtepi32_ps(sum_sixteen(sums)));
  return _mm512_sub_ps(_mm512_setzero_ps(), products);
}

template <unsigned bits>
L2ROUTE_VNNI void score_codes_block(const void* const* queries, std::size_t n_queries,
                                    const void* rows, std::size_t width, const VertexId* ids,
                                    std::size_t n, float* scores, std::size_t stride) {
  const std::size_t bytes = Packed<bits>::bytes(width);
  for (std::size_t i = 0; i < n; i += kTile) {
    const std::uint8_t* row[kTile];
    fill_tile(row, n - i, [&](std::size_t r) { return code_row(rows, bytes, ids[i + r]); });
    for (std::size_t q = 0; q < n_queries; q += kTile) {
      const CodeQuery* query[kTile];
      fill_tile(query, n_queries - q,
                [&](std::size_t t) { return static_cast<const CodeQuery*>(queries[q + t]); });
      store_tile(score_code_tile<bits>(query, row, bytes), n_queries - q, scores + q * stride + i,
                 stride);
    }
  }
}
}  // namespace avx512
#endif

template <ScoreKind kind, class Element>
ScoreBlock float_block_kernel(std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") return avx512::score_floats_block<kind, Element>;
  if (level == "avx2") return score_in_turn<avx2::score_rows<kind, Element>>;
#elif defined(__aarch64__)
  if (level == "neon") return score_in_turn<neon::score_rows<kind, Element>>;
#endif
  return score_in_turn<portable::score_rows<kind, Element>>;
}

template <unsigned bits>
ScoreBlock code_block_kernel(std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") {
    return processor().has_vnni ? avx512::score_codes_block<bits>
                                : score_in_turn<avx2::score_codes<bits>>;
  }
  if (level == "avx2") return score_in_turn<avx2::score_codes<bits>>;
#elif defined(__aarch64__)
  if (level == "neon") return score_in_turn<neon::score_codes<bits>>;
#endif
  return score_in_turn<portable::score_codes<bits>>;
}

}  // namespace l2route
