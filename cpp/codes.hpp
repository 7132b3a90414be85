// Scores of rows of 7-bit codes against a query of 8-bit codes, by inner product.
//
// A code c stands for lowest + step · c, dimension by dimension. The lowest values add the same to
// every score of a query and are left out; the steps are the query's affair, so a score is a sum of
// products of small integers: the same to the last bit on every machine. Seven bits, since AVX2
// adds pairs of products in sixteen. Rows are padded with zeros to a multiple of 64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "distance.hpp"

namespace l2route {

inline constexpr std::size_t kCodeLanes = 64;
inline constexpr float kLargestQueryCode = 127;

// A query in codes; a score is -scale · (sum of products).
struct CodeQuery {
  const std::int8_t* codes;
  float scale;
};

// Codes of query · steps, which are scaled so that the largest of them is 127.
inline float encode_query(const float* query, const float* steps, std::size_t width,
                          std::int8_t* codes) {
  float largest = 0;
  for (std::size_t j = 0; j < width; ++j) {
    largest = std::max(largest, std::fabs(query[j] * steps[j]));
  }
  if (largest == 0) {
    std::fill(codes, codes + width, std::int8_t{0});
    return 0;
  }
  for (std::size_t j = 0; j < width; ++j) {
    codes[j] =
        static_cast<std::int8_t>(std::lrint(query[j] * steps[j] / largest * kLargestQueryCode));
  }
  return largest / kLargestQueryCode;
}

inline const std::uint8_t* code_row(const void* rows, std::size_t width, VertexId id) {
  return static_cast<const std::uint8_t*>(rows) + static_cast<std::size_t>(id) * width;
}

inline float score_of_sum(const CodeQuery& query, std::int32_t sum) {
  return 0.0f - query.scale * static_cast<float>(sum);
}

// Four rows, scored side by side; where fewer are left, the last one stands in for the others.
struct CodeBlock {
  const std::uint8_t* rows[4];
  std::size_t n;

  CodeBlock(const void* from, std::size_t width, const VertexId* ids, std::size_t left)
      : n(std::min<std::size_t>(left, 4)) {
    for (std::size_t r = 0; r < 4; ++r) rows[r] = code_row(from, width, ids[std::min(r, n - 1)]);
  }

  void finish(const CodeQuery& query, const std::int32_t* sums, float* scores) const {
    for (std::size_t r = 0; r < n; ++r) scores[r] = score_of_sum(query, sums[r]);
  }
};

namespace portable {
inline void score_codes(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                        std::size_t n, float* scores) {
  const auto& from = *static_cast<const CodeQuery*>(query);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* row = code_row(rows, width, ids[i]);
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < width; ++j) sum += from.codes[j] * row[j];
    scores[i] = score_of_sum(from, sum);
  }
}
}  // namespace portable

#if defined(__x86_64__)
#define L2ROUTE_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))

namespace avx2 {
// Sums of the lanes of each of four.
L2ROUTE_AVX2 inline __m128i sum_lanes(const __m256i* four) {
  const __m256i sums =
      _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

L2ROUTE_AVX2 inline __m256i add_products(__m256i sum, const std::uint8_t* row, __m256i query) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
  const __m256i pairs = _mm256_maddubs_epi16(codes, query);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

L2ROUTE_AVX2 inline void score_codes(const void* query, const void* rows, std::size_t width,
                                     const VertexId* ids, std::size_t n, float* scores) {
  const auto& from = *static_cast<const CodeQuery*>(query);
  for (std::size_t i = 0; i < n; i += 4) {
    const CodeBlock block(rows, width, ids + i, n - i);
    __m256i sum[4] = {};
    for (std::size_t j = 0; j < width; j += 32) {
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from.codes + j));
      for (std::size_t r = 0; r < 4; ++r) sum[r] = add_products(sum[r], block.rows[r] + j, codes);
    }
    alignas(16) std::int32_t sums[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(sums), sum_lanes(sum));
    block.finish(from, sums, scores + i);
  }
}
}  // namespace avx2

namespace avx512 {
L2ROUTE_VNNI inline __m256i halves(__m512i sum) {
  return _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti32x8_epi32(sum, 1));
}

L2ROUTE_VNNI inline void score_codes(const void* query, const void* rows, std::size_t width,
                                     const VertexId* ids, std::size_t n, float* scores) {
  const auto& from = *static_cast<const CodeQuery*>(query);
  for (std::size_t i = 0; i < n; i += 4) {
    const CodeBlock block(rows, width, ids + i, n - i);
    __m512i sum[4] = {};
    for (std::size_t j = 0; j < width; j += kCodeLanes) {
      const __m512i codes = _mm512_loadu_si512(from.codes + j);
      for (std::size_t r = 0; r < 4; ++r) {
        sum[r] = _mm512_dpbusd_epi32(sum[r], _mm512_loadu_si512(block.rows[r] + j), codes);
      }
    }
    const __m256i four[4] = {halves(sum[0]), halves(sum[1]), halves(sum[2]), halves(sum[3])};
    alignas(16) std::int32_t sums[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(sums), avx2::sum_lanes(four));
    block.finish(from, sums, scores + i);
  }
}
}  // namespace avx512
#elif defined(__aarch64__)
namespace neon {
inline void score_codes(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                        std::size_t n, float* scores) {
  const auto& from = *static_cast<const CodeQuery*>(query);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* row = code_row(rows, width, ids[i]);
    int32x4_t sum = vdupq_n_s32(0);
    for (std::size_t j = 0; j < width; j += 16) {
      const int8x16_t a = vreinterpretq_s8_u8(vld1q_u8(row + j));  // seven bits: no sign
      const int8x16_t b = vld1q_s8(from.codes + j);
      sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
      sum = vpadalq_s16(sum, vmull_s8(vget_high_s8(a), vget_high_s8(b)));
    }
    scores[i] = score_of_sum(from, vaddvq_s32(sum));
  }
}
}  // namespace neon
#endif

inline ScoreRows code_kernel(std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") {
    const bool has_vnni =
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
    return has_vnni ? avx512::score_codes : avx2::score_codes;
  }
  if (level == "avx2") return avx2::score_codes;
#elif defined(__aarch64__)
  if (level == "neon") return neon::score_codes;
#endif
  return portable::score_codes;
}

}  // namespace l2route
