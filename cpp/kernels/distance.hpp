// Scores of rows of floats or half floats against a query, smaller is nearer; and sums of rows.
//
// Rows are padded with zeros to a multiple of 16 elements, so no kernel has a tail. Every kernel
// keeps 16 running sums and adds them up in the same order, so the kernels that have fused
// multiply-add (AVX2, AVX-512, NEON) agree to the last bit; the portable one may differ in it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/processor.hpp"
#include "types.hpp"

namespace l2route {

// Scores rows[ids[i]] against the query for i < n. The types behind `query` and `rows` depend on
// the kernel; `width` is in elements and a multiple of kLanes.
using ScoreRows = void (*)(const void* query, const void* rows, std::size_t width,
                           const VertexId* ids, std::size_t n, float* scores);

// Adds scales[i] · rows[ids[i]] to the sum for i < n.
using AddRows = void (*)(const float* rows, std::size_t width, const VertexId* ids,
                         const float* scales, std::size_t n, float* sum);

// Four rows at a time, so that the sum is read and written once for all four. Elements are summed
// independently, so the compiler can vectorise the loop.
[[gnu::always_inline]] inline void add_any_rows(const float* rows, std::size_t width,
                                                const VertexId* ids, const float* scales,
                                                std::size_t n, float* __restrict sum) {
  const auto row = [&](std::size_t i) { return rows + static_cast<std::size_t>(ids[i]) * width; };
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float *a = row(i), *b = row(i + 1), *c = row(i + 2), *d = row(i + 3);
    for (std::size_t j = 0; j < width; ++j) {
      sum[j] +=
          (scales[i] * a[j] + scales[i + 1] * b[j]) + (scales[i + 2] * c[j] + scales[i + 3] * d[j]);
    }
  }
  for (; i < n; ++i) {
    const float* a = row(i);
    for (std::size_t j = 0; j < width; ++j) sum[j] += scales[i] * a[j];
  }
}

// Negated inner products become +0 rather than -0, so that equal scores have equal bits.
template <ScoreKind kind>
inline float finish(float sum) {
  return kind == ScoreKind::l2 ? sum : 0.0f - sum;
}

namespace portable {
inline float to_float(float value) { return value; }

// Exact: every half float is a float.
inline float to_float(Half half) {
  const std::uint32_t sign = (half.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = half.bits & 0x7FFFu;
  if (magnitude < 0x0400u) {  // subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t exponent = magnitude >= 0x7C00u ? 0x7F800000u - (0x7C00u << 13) : 112u << 23;
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

template <ScoreKind kind, class Element>
float score_row(const float* query, const Element* row, std::size_t width) {
  float sums[kLanes] = {};
  for (std::size_t j = 0; j < width; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float a = query[j + lane];
      const float b = to_float(row[j + lane]);
      sums[lane] += kind == ScoreKind::l2 ? (a - b) * (a - b) : a * b;
    }
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return finish<kind>(sums[0]);
}

template <ScoreKind kind, class Element>
void score_rows(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                std::size_t n, float* scores) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto* row = static_cast<const Element*>(rows) + static_cast<std::size_t>(ids[i]) * width;
    scores[i] = score_row<kind>(static_cast<const float*>(query), row, width);
  }
}

inline void add_rows(const float* rows, std::size_t width, const VertexId* ids, const float* scales,
                     std::size_t n, float* sum) {
  add_any_rows(rows, width, ids, scales, n, sum);
}
}  // namespace portable

#if defined(__x86_64__)
#define L2ROUTE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define L2ROUTE_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma,f16c")))

L2ROUTE_AVX2 inline float sum_lanes(__m256 eight) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

namespace avx2 {
template <ScoreKind kind>
L2ROUTE_AVX2 inline __m256 accumulate(__m256 sum, __m256 a, __m256 b) {
  if constexpr (kind == ScoreKind::l2) {
    const __m256 difference = _mm256_sub_ps(a, b);
    return _mm256_fmadd_ps(difference, difference, sum);
  } else {
    return _mm256_fmadd_ps(a, b, sum);
  }
}

L2ROUTE_AVX2 inline __m256 load(const float* eight) { return _mm256_loadu_ps(eight); }
L2ROUTE_AVX2 inline __m256 load(const Half* eight) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(eight)));
}

// Several rows side by side: independent chains of additions hide their latency.
template <ScoreKind kind, std::size_t n_rows, class Element>
L2ROUTE_AVX2 inline void score_block(const float* query, const Element* rows, std::size_t width,
                                     const VertexId* ids, float* scores) {
  const Element* row[n_rows];
  __m256 low[n_rows], high[n_rows];
  for (std::size_t r = 0; r < n_rows; ++r) {
    row[r] = rows + static_cast<std::size_t>(ids[r]) * width;
    low[r] = high[r] = _mm256_setzero_ps();
  }
  for (std::size_t j = 0; j < width; j += kLanes) {
    const __m256 query_low = _mm256_loadu_ps(query + j);
    const __m256 query_high = _mm256_loadu_ps(query + j + 8);
    for (std::size_t r = 0; r < n_rows; ++r) {
      low[r] = accumulate<kind>(low[r], query_low, load(row[r] + j));
      high[r] = accumulate<kind>(high[r], query_high, load(row[r] + j + 8));
    }
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    scores[r] = finish<kind>(sum_lanes(_mm256_add_ps(low[r], high[r])));
  }
}

template <ScoreKind kind, class Element>
L2ROUTE_AVX2 void score_rows(const void* query, const void* rows, std::size_t width,
                             const VertexId* ids, std::size_t n, float* scores) {
  const auto* from = static_cast<const float*>(query);
  const auto* to = static_cast<const Element*>(rows);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) score_block<kind, 4>(from, to, width, ids + i, scores + i);
  for (; i < n; ++i) score_block<kind, 1>(from, to, width, ids + i, scores + i);
}

L2ROUTE_AVX2 inline void add_rows(const float* rows, std::size_t width, const VertexId* ids,
                                  const float* scales, std::size_t n, float* sum) {
  add_any_rows(rows, width, ids, scales, n, sum);
}
}  // namespace avx2

namespace avx512 {
template <ScoreKind kind>
L2ROUTE_AVX512 inline __m512 accumulate(__m512 sum, __m512 a, __m512 b) {
  if constexpr (kind == ScoreKind::l2) {
    const __m512 difference = _mm512_sub_ps(a, b);
    return _mm512_fmadd_ps(difference, difference, sum);
  } else {
    return _mm512_fmadd_ps(a, b, sum);
  }
}

L2ROUTE_AVX512 inline __m512 load(const float* sixteen) { return _mm512_loadu_ps(sixteen); }
L2ROUTE_AVX512 inline __m512 load(const Half* sixteen) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sixteen)));
}

template <ScoreKind kind, std::size_t n_rows, class Element>
L2ROUTE_AVX512 inline void score_block(const float* query, const Element* rows, std::size_t width,
                                       const VertexId* ids, float* scores) {
  const Element* row[n_rows];
  __m512 sum[n_rows];
  for (std::size_t r = 0; r < n_rows; ++r) {
    row[r] = rows + static_cast<std::size_t>(ids[r]) * width;
    sum[r] = _mm512_setzero_ps();
  }
  for (std::size_t j = 0; j < width; j += kLanes) {
    const __m512 q = _mm512_loadu_ps(query + j);
    for (std::size_t r = 0; r < n_rows; ++r) {
      sum[r] = accumulate<kind>(sum[r], q, load(row[r] + j));
    }
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(sum[r]), _mm512_extractf32x8_ps(sum[r], 1));
    scores[r] = finish<kind>(sum_lanes(eight));
  }
}

template <ScoreKind kind, class Element>
L2ROUTE_AVX512 void score_rows(const void* query, const void* rows, std::size_t width,
                               const VertexId* ids, std::size_t n, float* scores) {
  const auto* from = static_cast<const float*>(query);
  const auto* to = static_cast<const Element*>(rows);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) score_block<kind, 4>(from, to, width, ids + i, scores + i);
  for (; i < n; ++i) score_block<kind, 1>(from, to, width, ids + i, scores + i);
}

L2ROUTE_AVX512 inline void add_rows(const float* rows, std::size_t width, const VertexId* ids,
                                    const float* scales, std::size_t n, float* sum) {
  add_any_rows(rows, width, ids, scales, n, sum);
}
}  // namespace avx512
#elif defined(__aarch64__)
namespace neon {
inline float32x4_t load(const float* four) { return vld1q_f32(four); }
inline float32x4_t load(const Half* four) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&four->bits)));
}

template <ScoreKind kind, class Element>
float score_row(const float* query, const Element* row, std::size_t width) {
  float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (std::size_t j = 0; j < width; j += kLanes) {
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      const float32x4_t a = vld1q_f32(query + j + 4 * quarter);
      const float32x4_t b = load(row + j + 4 * quarter);
      if constexpr (kind == ScoreKind::l2) {
        const float32x4_t difference = vsubq_f32(a, b);
        sum[quarter] = vfmaq_f32(sum[quarter], difference, difference);
      } else {
        sum[quarter] = vfmaq_f32(sum[quarter], a, b);
      }
    }
  }
  const float32x4_t four = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return finish<kind>(vget_lane_f32(two, 0) + vget_lane_f32(two, 1));
}

template <ScoreKind kind, class Element>
void score_rows(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                std::size_t n, float* scores) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto* row = static_cast<const Element*>(rows) + static_cast<std::size_t>(ids[i]) * width;
    scores[i] = score_row<kind>(static_cast<const float*>(query), row, width);
  }
}
}  // namespace neon
#endif

// Names of the kernels this machine can run, fastest first.
inline std::vector<std::string> simd_levels() {
  std::vector<std::string> levels;
#if defined(__x86_64__)
  if (processor().has_avx512) levels.emplace_back("avx512");
  if (processor().has_avx2) levels.emplace_back("avx2");
#elif defined(__aarch64__)
  levels.emplace_back("neon");
#endif
  levels.emplace_back("portable");
  return levels;
}

// The level of this name, or the fastest one of this machine for "auto"; throws if this machine
// does not have it.
inline std::string choose_level(const std::string& simd) {
  const std::vector<std::string> levels = simd_levels();
  if (simd == "auto") return levels.front();
  if (std::find(levels.begin(), levels.end(), simd) == levels.end()) {
    std::string known = "auto";
    for (const std::string& level : levels) known += ", " + level;
    throw std::invalid_argument("expected a SIMD level of " + known + ", got '" + simd + "'");
  }
  return simd;
}

template <ScoreKind kind, class Element>
ScoreRows float_kernel(std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") return avx512::score_rows<kind, Element>;
  if (level == "avx2") return avx2::score_rows<kind, Element>;
#elif defined(__aarch64__)
  if (level == "neon") return neon::score_rows<kind, Element>;
#endif
  return portable::score_rows<kind, Element>;
}

inline AddRows add_kernel([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") return avx512::add_rows;
  if (level == "avx2") return avx2::add_rows;
#endif
  return portable::add_rows;
}

}  // namespace l2route
