// Scores of routing vectors against a query, smaller is nearer; and sums of routing vectors.
//
// Rows are padded with zeros to a multiple of 16 floats, so no kernel has a tail. Every kernel
// keeps 16 running sums and adds them up in the same order, so the kernels that have fused
// multiply-add (AVX2, AVX-512, NEON) agree to the last bit; the portable one may differ in it.
#pragma once

#include <algorithm>
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

namespace l2route {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kCacheLine = 64;

enum class ScoreKind { l2, inner_product };

using VertexId = std::int32_t;

// Scores rows[ids[i]] against the query for i < n; `width` is a multiple of kLanes.
using ScoreRows = void (*)(const float* query, const float* rows, std::size_t width,
                           const VertexId* ids, std::size_t n, float* scores);

// Adds scales[i] · rows[ids[i]] to the sum for i < n.
using AddRows = void (*)(const float* rows, std::size_t width, const VertexId* ids,
                         const float* scales, std::size_t n, float* sum);

// Four rows at a time: the sum is read and written once for all four. Every element is a sum of its
// own, so a compiler may make of it what a machine has.
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
template <ScoreKind kind>
float score_row(const float* query, const float* row, std::size_t width) {
  float sums[kLanes] = {};
  for (std::size_t j = 0; j < width; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float a = query[j + lane];
      const float b = row[j + lane];
      sums[lane] += kind == ScoreKind::l2 ? (a - b) * (a - b) : a * b;
    }
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return finish<kind>(sums[0]);
}

template <ScoreKind kind>
void score_rows(const float* query, const float* rows, std::size_t width, const VertexId* ids,
                std::size_t n, float* scores) {
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] = score_row<kind>(query, rows + static_cast<std::size_t>(ids[i]) * width, width);
  }
}

inline void add_rows(const float* rows, std::size_t width, const VertexId* ids, const float* scales,
                     std::size_t n, float* sum) {
  add_any_rows(rows, width, ids, scales, n, sum);
}
}  // namespace portable

#if defined(__x86_64__)
#define L2ROUTE_AVX2 __attribute__((target("avx2,fma")))
#define L2ROUTE_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma")))

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

// Two rows side by side: four independent chains of additions hide their latency.
template <ScoreKind kind, std::size_t n_rows>
L2ROUTE_AVX2 inline void score_block(const float* query, const float* rows, std::size_t width,
                                     const VertexId* ids, float* scores) {
  const float* row[n_rows];
  __m256 low[n_rows], high[n_rows];
  for (std::size_t r = 0; r < n_rows; ++r) {
    row[r] = rows + static_cast<std::size_t>(ids[r]) * width;
    low[r] = high[r] = _mm256_setzero_ps();
  }
  for (std::size_t j = 0; j < width; j += kLanes) {
    const __m256 query_low = _mm256_loadu_ps(query + j);
    const __m256 query_high = _mm256_loadu_ps(query + j + 8);
    for (std::size_t r = 0; r < n_rows; ++r) {
      low[r] = accumulate<kind>(low[r], query_low, _mm256_loadu_ps(row[r] + j));
      high[r] = accumulate<kind>(high[r], query_high, _mm256_loadu_ps(row[r] + j + 8));
    }
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    scores[r] = finish<kind>(sum_lanes(_mm256_add_ps(low[r], high[r])));
  }
}

template <ScoreKind kind>
L2ROUTE_AVX2 void score_rows(const float* query, const float* rows, std::size_t width,
                             const VertexId* ids, std::size_t n, float* scores) {
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) score_block<kind, 4>(query, rows, width, ids + i, scores + i);
  for (; i < n; ++i) score_block<kind, 1>(query, rows, width, ids + i, scores + i);
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

template <ScoreKind kind, std::size_t n_rows>
L2ROUTE_AVX512 inline void score_block(const float* query, const float* rows, std::size_t width,
                                       const VertexId* ids, float* scores) {
  const float* row[n_rows];
  __m512 sum[n_rows];
  for (std::size_t r = 0; r < n_rows; ++r) {
    row[r] = rows + static_cast<std::size_t>(ids[r]) * width;
    sum[r] = _mm512_setzero_ps();
  }
  for (std::size_t j = 0; j < width; j += kLanes) {
    const __m512 q = _mm512_loadu_ps(query + j);
    for (std::size_t r = 0; r < n_rows; ++r) {
      sum[r] = accumulate<kind>(sum[r], q, _mm512_loadu_ps(row[r] + j));
    }
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(sum[r]), _mm512_extractf32x8_ps(sum[r], 1));
    scores[r] = finish<kind>(sum_lanes(eight));
  }
}

template <ScoreKind kind>
L2ROUTE_AVX512 void score_rows(const float* query, const float* rows, std::size_t width,
                               const VertexId* ids, std::size_t n, float* scores) {
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) score_block<kind, 4>(query, rows, width, ids + i, scores + i);
  for (; i < n; ++i) score_block<kind, 1>(query, rows, width, ids + i, scores + i);
}

L2ROUTE_AVX512 inline void add_rows(const float* rows, std::size_t width, const VertexId* ids,
                                    const float* scales, std::size_t n, float* sum) {
  add_any_rows(rows, width, ids, scales, n, sum);
}
}  // namespace avx512
#elif defined(__aarch64__)
namespace neon {
template <ScoreKind kind>
float score_row(const float* query, const float* row, std::size_t width) {
  float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (std::size_t j = 0; j < width; j += kLanes) {
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      const float32x4_t a = vld1q_f32(query + j + 4 * quarter);
      const float32x4_t b = vld1q_f32(row + j + 4 * quarter);
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

template <ScoreKind kind>
void score_rows(const float* query, const float* rows, std::size_t width, const VertexId* ids,
                std::size_t n, float* scores) {
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] = score_row<kind>(query, rows + static_cast<std::size_t>(ids[i]) * width, width);
  }
}
}  // namespace neon
#endif

// Names of the kernels this machine can run, fastest first.
inline std::vector<std::string> simd_levels() {
  std::vector<std::string> levels;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    levels.emplace_back("avx512");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels.emplace_back("avx2");
#elif defined(__aarch64__)
  levels.emplace_back("neon");
#endif
  levels.emplace_back("portable");
  return levels;
}

struct Kernels {
  ScoreRows score;
  AddRows add;
};

template <ScoreKind kind>
Kernels kernels_of(std::string_view simd) {
#if defined(__x86_64__)
  if (simd == "avx512") return {avx512::score_rows<kind>, avx512::add_rows};
  if (simd == "avx2") return {avx2::score_rows<kind>, avx2::add_rows};
#elif defined(__aarch64__)
  if (simd == "neon") return {neon::score_rows<kind>, portable::add_rows};
#endif
  return {portable::score_rows<kind>, portable::add_rows};
}

// The kernels for `simd`, or the fastest ones of this machine for "auto".
inline Kernels choose_kernels(ScoreKind kind, const std::string& simd) {
  const std::vector<std::string> levels = simd_levels();
  const std::string& level = simd == "auto" ? levels.front() : simd;
  if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
    throw std::invalid_argument("this machine has no SIMD level '" + simd + "'");
  }
  return kind == ScoreKind::l2 ? kernels_of<ScoreKind::l2>(level)
                               : kernels_of<ScoreKind::inner_product>(level);
}

// Padded rows with the kernels that score them and add them up.
struct Rows {
  const float* data = nullptr;
  std::size_t n = 0;
  std::size_t width = 0;  // floats in a row, a multiple of kLanes
  Kernels kernels{};
  const float* bias = nullptr;  // added to a row's inner product, hence taken from its score

  // Into the second-level cache: a neighbour list's rows together overrun the first level's few
  // outstanding misses, which makes the whole search a third slower.
  void prefetch(VertexId id) const {
    const float* row = data + static_cast<std::size_t>(id) * width;
    for (std::size_t j = 0; j < width; j += kCacheLine / sizeof(float)) {
      __builtin_prefetch(row + j, 0, 2);
    }
  }
};

// Scores rows for one query and counts them: a distance that is computed is a distance counted.
class Scorer {
 public:
  Scorer(const Rows& rows, const float* query) : rows_(rows), query_(query) {}

  void score(const VertexId* ids, std::size_t n, float* scores) {
    rows_.kernels.score(query_, rows_.data, rows_.width, ids, n, scores);
    if (rows_.bias != nullptr) {
      for (std::size_t i = 0; i < n; ++i) scores[i] -= rows_.bias[ids[i]];
    }
    n_computed_ += n;
  }

  void prefetch(VertexId id) const { rows_.prefetch(id); }
  std::size_t n_computed() const { return n_computed_; }

 private:
  const Rows& rows_;
  const float* query_;
  std::size_t n_computed_ = 0;
};

}  // namespace l2route
