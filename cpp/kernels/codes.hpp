// Scores of rows of codes of 7, 4 or 2 bits against a query of 8-bit codes, by inner product.
//
// A code c stands for offset + scale · c in each dimension. The offsets add the same number to all
// scores of a query, and the scales are multiplied into the query. The rest of a score is a sum of
// products of small integers, which is the same to the last bit on every machine. Of 8 bits only 7
// are used, because AVX2 adds pairs of products in 16 bits. Rows are padded with zeros to a
// multiple of 64 bytes. Codes of 4 and 2 bits are packed two and four to a byte: in each block of
// 128 or 256, code 64·p + i is the p-th part of byte i, from the lowest bits up.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/distance.hpp"
#include "kernels/sums.hpp"

namespace l2route {

inline constexpr double kLargestQueryCode = 127;

// Most dimensions for which sums of products of codes fit into 32 bits.
inline constexpr std::size_t max_coded_dim(Element element) {
  const unsigned largest = element == Element::code ? 127 : (1u << code_bits(element)) - 1;
  return std::numeric_limits<std::int32_t>::max() / 127u / largest;
}

// The values that codes stand for: offset + scale · code, one of each per element of a row.
struct Codes {
  const float* offset = nullptr;
  const float* scale = nullptr;
};

// A query in codes; a score is shift - scale · (sum of products). The caller adds the shift: a
// kernel that fused it with the product would differ from the others in the last bit.
struct CodeQuery {
  const std::int8_t* codes = nullptr;
  float scale = 0;
  float shift = 0;
};

// Rounds kSums numbers to the nearest integers, which have to fit into a byte; halves to even.
inline void round_to_bytes(const double* numbers, std::int8_t* rounded) {
#if defined(__x86_64__)
  const auto pair = [&](std::size_t at) { return _mm_cvtpd_epi32(_mm_loadu_pd(numbers + at)); };
  const __m128i low = _mm_unpacklo_epi64(pair(0), pair(2));
  const __m128i high = _mm_unpacklo_epi64(pair(4), pair(6));
  const __m128i words = _mm_packs_epi32(low, high);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(rounded), _mm_packs_epi16(words, words));
#else
  for (std::size_t s = 0; s < kSums; ++s) {
    rounded[s] = static_cast<std::int8_t>(std::lrint(numbers[s]));
  }
#endif
}

// Codes of query · scale, multiplied so that the largest magnitude is 127. In double precision:
// products of small floats would underflow. The width is a multiple of kSums.
[[gnu::always_inline]] inline CodeQuery encode_any_query(const float* query, const Codes& values,
                                                         std::size_t width, std::int8_t* codes) {
  double largest[kSums] = {}, shift[kSums] = {};
  for (std::size_t j = 0; j < width; j += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) {
      const double number = query[j + s];
      const double size = std::fabs(number * values.scale[j + s]);
      largest[s] = size > largest[s] ? size : largest[s];
      shift[s] -= number * values.offset[j + s];
    }
  }
  const double most = *std::max_element(largest, largest + kSums);
  const double share = most > 0 ? kLargestQueryCode / most : 0.0;
  for (std::size_t j = 0; j < width; j += kSums) {
    double numbers[kSums];
    for (std::size_t s = 0; s < kSums; ++s) {
      numbers[s] = double{query[j + s]} * values.scale[j + s] * share;
    }
    round_to_bytes(numbers, codes + j);
  }
  return {codes, static_cast<float>(most / kLargestQueryCode),
          static_cast<float>(sum_of_sums(shift))};
}

// Without fused multiply-add, so that every level has the same result to the last bit.
using EncodeQuery = CodeQuery (*)(const float* query, const Codes& values, std::size_t width,
                                  std::int8_t* codes);

namespace portable {
inline CodeQuery encode_query(const float* query, const Codes& values, std::size_t width,
                              std::int8_t* codes) {
  return encode_any_query(query, values, width, codes);
}
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
__attribute__((target("avx2"))) inline CodeQuery encode_query(const float* query,
                                                              const Codes& values,
                                                              std::size_t width,
                                                              std::int8_t* codes) {
  return encode_any_query(query, values, width, codes);
}
}  // namespace avx2
#endif

inline EncodeQuery encode_kernel([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  if (level != "portable") return avx2::encode_query;
#endif
  return portable::encode_query;
}

// How codes of 8, 4 or 2 bits share bytes.
template <unsigned bits>
struct Packed {
  static constexpr std::size_t kPerByte = 8 / bits;
  static constexpr int kLow = (1 << bits) - 1;  // the lowest bits

  static std::size_t bytes(std::size_t width) { return width / kPerByte; }

  // Of a query's codes, those that meet the first parts of the bytes from j on, where j is in a
  // block of 64 bytes; those of the p-th parts are p · 64 behind.
  static const std::int8_t* facing(const std::int8_t* query, std::size_t j) {
    return query + j / kCodeLanes * kPerByte * kCodeLanes + j % kCodeLanes;
  }
};

inline const std::uint8_t* code_row(const void* rows, std::size_t bytes, VertexId id) {
  return static_cast<const std::uint8_t*>(rows) + static_cast<std::size_t>(id) * bytes;
}

inline float score_of_sum(const CodeQuery& query, std::int32_t sum) {
  return 0.0f - query.scale * static_cast<float>(sum);
}

// Four rows that are scored side by side; if fewer are left, the last one is repeated.
struct CodeBlock {
  const std::uint8_t* rows[4];
  std::size_t n;

  CodeBlock(const void* from, std::size_t bytes, const VertexId* ids, std::size_t left)
      : n(std::min<std::size_t>(left, 4)) {
    for (std::size_t r = 0; r < 4; ++r) rows[r] = code_row(from, bytes, ids[std::min(r, n - 1)]);
  }

  void finish(const CodeQuery& query, const std::int32_t* sums, float* scores) const {
    for (std::size_t r = 0; r < n; ++r) scores[r] = score_of_sum(query, sums[r]);
  }
};

namespace portable {
template <unsigned bits>
void score_codes(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                 std::size_t n, float* scores) {
  using Layout = Packed<bits>;
  const auto& from = *static_cast<const CodeQuery*>(query);
  const std::size_t bytes = Layout::bytes(width);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* row = code_row(rows, bytes, ids[i]);
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < bytes; ++j) {
      const std::int8_t* const facing = Layout::facing(from.codes, j);
      for (std::size_t part = 0; part < Layout::kPerByte; ++part) {
        sum += facing[part * kCodeLanes] * ((row[j] >> (bits * part)) & Layout::kLow);
      }
    }
    scores[i] = score_of_sum(from, sum);
  }
}
}  // namespace portable

#if defined(__x86_64__)
#define L2ROUTE_VNNI \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))

namespace avx2 {
// Sum of the lanes of each of four vectors.
L2ROUTE_AVX2 inline __m128i sum_lanes(const __m256i* four) {
  const __m256i sums =
      _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

L2ROUTE_AVX2 inline __m256i load_codes(const void* codes) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(codes));
}

L2ROUTE_AVX2 inline __m256i add_products(__m256i sum, __m256i codes, __m256i query) {
  const __m256i pairs = _mm256_maddubs_epi16(codes, query);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// The p-th codes of all bytes.
template <unsigned bits>
L2ROUTE_AVX2 inline __m256i part_of(__m256i bytes, std::size_t part) {
  if constexpr (bits == 8) return bytes;
  const __m256i shifted = _mm256_srli_epi16(bytes, static_cast<int>(bits * part));
  return _mm256_and_si256(shifted, _mm256_set1_epi8(static_cast<char>(Packed<bits>::kLow)));
}

template <unsigned bits>
L2ROUTE_AVX2 void score_codes(const void* query, const void* rows, std::size_t width,
                              const VertexId* ids, std::size_t n, float* scores) {
  using Layout = Packed<bits>;
  const auto& from = *static_cast<const CodeQuery*>(query);
  const std::size_t bytes = Layout::bytes(width);
  for (std::size_t i = 0; i < n; i += 4) {
    const CodeBlock block(rows, bytes, ids + i, n - i);
    __m256i sum[4] = {};
    for (std::size_t j = 0; j < bytes; j += 32) {
      const std::int8_t* const facing = Layout::facing(from.codes, j);
      for (std::size_t part = 0; part < Layout::kPerByte; ++part) {
        const __m256i codes = load_codes(facing + part * kCodeLanes);
        for (std::size_t r = 0; r < 4; ++r) {
          sum[r] = add_products(sum[r], part_of<bits>(load_codes(block.rows[r] + j), part), codes);
        }
      }
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

// The p-th codes of all bytes.
template <unsigned bits>
L2ROUTE_VNNI inline __m512i part_of(__m512i bytes, std::size_t part) {
  if constexpr (bits == 8) return bytes;
  const __m512i shifted = _mm512_srli_epi16(bytes, static_cast<unsigned>(bits * part));
  return _mm512_and_si512(shifted, _mm512_set1_epi8(static_cast<char>(Packed<bits>::kLow)));
}

template <unsigned bits>
L2ROUTE_VNNI void score_codes(const void* query, const void* rows, std::size_t width,
                              const VertexId* ids, std::size_t n, float* scores) {
  using Layout = Packed<bits>;
  const auto& from = *static_cast<const CodeQuery*>(query);
  const std::size_t bytes = Layout::bytes(width);
  for (std::size_t i = 0; i < n; i += 4) {
    const CodeBlock block(rows, bytes, ids + i, n - i);
    __m512i sum[4] = {};
    for (std::size_t j = 0; j < bytes; j += kCodeLanes) {
      const std::int8_t* const facing = Layout::facing(from.codes, j);
      __m512i row[4];
      for (std::size_t r = 0; r < 4; ++r) row[r] = _mm512_loadu_si512(block.rows[r] + j);
      for (std::size_t part = 0; part < Layout::kPerByte; ++part) {
        const __m512i codes = _mm512_loadu_si512(facing + part * kCodeLanes);
        for (std::size_t r = 0; r < 4; ++r) {
          sum[r] = _mm512_dpbusd_epi32(sum[r], part_of<bits>(row[r], part), codes);
        }
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
inline int32x4_t add_products(int32x4_t sum, uint8x16_t codes, const std::int8_t* query) {
  const int8x16_t a = vreinterpretq_s8_u8(codes);  // at most seven bits, so never negative
  const int8x16_t b = vld1q_s8(query);
  sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  return vpadalq_s16(sum, vmull_s8(vget_high_s8(a), vget_high_s8(b)));
}

// The p-th codes of all bytes.
template <unsigned bits, std::size_t part>
uint8x16_t part_of(uint8x16_t bytes) {
  if constexpr (bits == 8) {
    return bytes;
  } else if constexpr (part == 0) {
    return vandq_u8(bytes, vdupq_n_u8(Packed<bits>::kLow));
  } else {
    return vandq_u8(vshrq_n_u8(bytes, bits * part), vdupq_n_u8(Packed<bits>::kLow));
  }
}

template <unsigned bits>
void score_codes(const void* query, const void* rows, std::size_t width, const VertexId* ids,
                 std::size_t n, float* scores) {
  using Layout = Packed<bits>;
  const auto& from = *static_cast<const CodeQuery*>(query);
  const std::size_t bytes = Layout::bytes(width);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* row = code_row(rows, bytes, ids[i]);
    int32x4_t sum = vdupq_n_s32(0);
    for (std::size_t j = 0; j < bytes; j += 16) {
      const uint8x16_t codes = vld1q_u8(row + j);
      const std::int8_t* const facing = Layout::facing(from.codes, j);
      const auto add = [&]<std::size_t... parts>(std::index_sequence<parts...>) {
        ((sum = add_products(sum, part_of<bits, parts>(codes), facing + parts * kCodeLanes)), ...);
      };
      add(std::make_index_sequence<Layout::kPerByte>{});
    }
    scores[i] = score_of_sum(from, vaddvq_s32(sum));
  }
}
}  // namespace neon
#endif

template <unsigned bits>
ScoreRows code_kernel(std::string_view level) {
#if defined(__x86_64__)
  if (level == "avx512") {
    return processor().has_vnni ? avx512::score_codes<bits> : avx2::score_codes<bits>;
  }
  if (level == "avx2") return avx2::score_codes<bits>;
#elif defined(__aarch64__)
  if (level == "neon") return neon::score_codes<bits>;
#endif
  return portable::score_codes<bits>;
}

}  // namespace l2route
