// Keys, by which visited vertices are ranked, and the selection of those that are near.
//
// A key is 64 bits: the score's bits in an order-preserving form, then the vertex id, then one bit
// for "expanded". Comparing keys compares (score, id), so ties are broken by id.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/processor.hpp"
#include "types.hpp"

namespace l2route {

using Key = std::uint64_t;
inline constexpr Key kExpanded = 1;
inline constexpr Key kNoLimit = std::numeric_limits<Key>::max();

inline Key make_key(float score, VertexId vertex) {
  // −0 becomes +0 and NaN becomes +inf, so that keys are totally ordered.
  constexpr float kFarthest = std::numeric_limits<float>::infinity();
  const auto bits = std::bit_cast<std::uint32_t>(score < kFarthest ? score + 0.0f : kFarthest);
  const std::uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u);
  return (Key{ordered} << 32) | (static_cast<Key>(static_cast<std::uint32_t>(vertex)) << 1);
}

inline VertexId vertex_of(Key key) {
  return static_cast<VertexId>(static_cast<std::uint32_t>(key) >> 1);
}

inline float score_of(Key key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t bits = ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xFFFFFFFFu);
  return std::bit_cast<float>(bits);
}

// Sorts keys, fast where they are few.
inline void sort_few(Key* keys, std::size_t n) {
  constexpr std::size_t kFew = 16;
  if (n > kFew) {
    std::sort(keys, keys + n);
    return;
  }
  for (std::size_t i = 1; i < n; ++i) {
    const Key key = keys[i];
    std::size_t at = i;
    for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
    keys[at] = key;
  }
}

// Writes the keys, ascending, of those of n different vertices whose score is not above `farthest`,
// and of the first `n_any` of them, whatever their scores; returns their number. `keys` has room
// for n + kKeyRoom.
using NearKeys = std::size_t (*)(const float* scores, const VertexId* ids, std::size_t n,
                                 float farthest, std::size_t n_any, Key* keys);
inline constexpr std::size_t kKeyRoom = 8;

namespace portable {
inline std::size_t near_keys(const float* scores, const VertexId* ids, std::size_t n,
                             float farthest, std::size_t n_any, Key* keys) {
  std::size_t n_near = 0;
  for (std::size_t i = 0; i < n; ++i) {
    keys[n_near] = make_key(scores[i], ids[i]);
    // no branch: whether a vertex is near cannot be predicted
    n_near +=
        static_cast<std::size_t>(!(scores[i] > farthest)) | static_cast<std::size_t>(i < n_any);
  }
  sort_few(keys, n_near);
  return n_near;
}
}  // namespace portable

#if defined(__x86_64__)
namespace avx512 {
#define L2ROUTE_KEYS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")))

inline constexpr std::size_t kKeyLanes = 8;

L2ROUTE_KEYS inline __mmask8 first_lanes(std::size_t n) {
  return static_cast<__mmask8>(n < kKeyLanes ? (1u << n) - 1 : 0xFFu);
}

// The keys of eight vertices.
L2ROUTE_KEYS inline __m512i make_keys(__m256 scores, __m256i ids) {
  const __m256 farthest = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  // of a NaN and another number, min returns the second
  const __m256 ranked = _mm256_min_ps(_mm256_add_ps(scores, _mm256_setzero_ps()), farthest);
  const __m256i bits = _mm256_castps_si256(ranked);
  const __m256i flipped =
      _mm256_or_si256(_mm256_srai_epi32(bits, 31), _mm256_set1_epi32(INT32_MIN));
  const __m512i ordered = _mm512_cvtepu32_epi64(_mm256_xor_si256(bits, flipped));
  const __m512i shifted = _mm512_slli_epi64(_mm512_cvtepu32_epi64(ids), 1);
  return _mm512_or_si512(_mm512_slli_epi64(ordered, 32), shifted);
}

// Sorts different keys by their ranks: how many of the others are smaller. `keys` has kKeyRoom
// more.
template <std::size_t n_vectors>
L2ROUTE_KEYS inline void sort_by_rank(Key* keys, std::size_t n) {
  const __m512i absent = _mm512_set1_epi64(-1);
  __m512i lanes[n_vectors];
  Key own[n_vectors * kKeyLanes];
  for (std::size_t v = 0; v < n_vectors; ++v) {
    const std::size_t at = v * kKeyLanes;
    const __mmask8 mask = first_lanes(n > at ? n - at : 0);
    lanes[v] = _mm512_mask_loadu_epi64(absent, mask, keys + at);
    _mm512_storeu_si512(own + at, lanes[v]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const __m512i key = _mm512_set1_epi64(static_cast<long long>(own[i]));
    unsigned rank = 0;
    for (std::size_t v = 0; v < n_vectors; ++v) {
      rank += static_cast<unsigned>(__builtin_popcount(_mm512_cmplt_epu64_mask(lanes[v], key)));
    }
    keys[rank] = own[i];
  }
}

L2ROUTE_KEYS inline std::size_t near_keys(const float* scores, const VertexId* ids, std::size_t n,
                                          float farthest, std::size_t n_any, Key* keys) {
  const __m256 limit = _mm256_set1_ps(farthest);
  std::size_t n_near = 0;
  for (std::size_t i = 0; i < n; i += kKeyLanes) {
    const __mmask8 mask = first_lanes(n - i);
    const __m256 own = _mm256_maskz_loadu_ps(mask, scores + i);
    const auto is_any = static_cast<__mmask8>(mask & first_lanes(n_any > i ? n_any - i : 0));
    const auto is_near =
        static_cast<__mmask8>(_mm256_mask_cmp_ps_mask(mask, own, limit, _CMP_NGT_UQ) | is_any);
    const __m512i made = make_keys(own, _mm256_maskz_loadu_epi32(mask, ids + i));
    // compressed in a register: a store that compresses is many times slower
    _mm512_storeu_si512(keys + n_near, _mm512_maskz_compress_epi64(is_near, made));
    n_near += static_cast<std::size_t>(__builtin_popcount(is_near));
  }
  if (n_near <= 8) {
    if (n_near > 1) sort_by_rank<1>(keys, n_near);
  } else if (n_near <= 16) {
    sort_by_rank<2>(keys, n_near);
  } else if (n_near <= 32) {
    sort_by_rank<4>(keys, n_near);
  } else if (n_near <= 64) {
    sort_by_rank<8>(keys, n_near);
  } else {
    std::sort(keys, keys + n_near);
  }
  return n_near;
}
}  // namespace avx512
#endif

inline NearKeys near_keys_kernel([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512" && processor().has_vnni) return avx512::near_keys;
#endif
  return portable::near_keys;
}

}  // namespace l2route
