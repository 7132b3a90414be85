// A fast random rotation of vectors: rounds of random signs and Walsh–Hadamard transforms.
//
// A round multiplies all elements by signs and transforms a block of them, as long as the largest
// power of two that is not above the dimension: the first ones in even rounds, the last ones in odd
// rounds. A dense rotation takes dim² products; this takes n_rounds · block · log2(block)
// additions. Elements are added in one order only, so every machine has the same result to the last
// bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "types.hpp"

namespace l2route {

struct Rotation {
  static constexpr std::size_t kLeastDim = 16;

  const std::int8_t* signs = nullptr;  // +1 or −1 [n_rounds, dim]
  std::size_t n_rounds = 0;
  std::size_t dim = 0;  // at least kLeastDim

  std::size_t block() const { return std::bit_floor(dim); }
};

// One pass of a transform within groups of 16, in place: with h a power of two below 16, elements j
// and j + h of a group become their sum and their difference.
template <std::size_t h>
[[gnu::always_inline]] inline void mix_near(float* values, std::size_t n) {
  constexpr std::size_t group = Rotation::kLeastDim;
  for (std::size_t i = 0; i < n; i += group) {
    float mixed[group];
    for (std::size_t j = 0; j < group; ++j) {
      const float own = values[i + j], other = values[i + (j ^ h)];
      mixed[j] = (j & h) != 0 ? other - own : own + other;
    }
    for (std::size_t j = 0; j < group; ++j) values[i + j] = mixed[j];
  }
}

// Walsh–Hadamard transform in place, not scaled; n is a power of two of at least 16.
[[gnu::always_inline]] inline void hadamard(float* values, std::size_t n) {
  mix_near<1>(values, n);
  mix_near<2>(values, n);
  mix_near<4>(values, n);
  mix_near<8>(values, n);
  for (std::size_t h = Rotation::kLeastDim; h < n; h *= 2) {
    for (std::size_t i = 0; i < n; i += 2 * h) {
      for (std::size_t j = i; j < i + h; ++j) {
        const float a = values[j], b = values[j + h];
        values[j] = a + b;
        values[j + h] = a - b;
      }
    }
  }
}

// Multiplies values by signs and a scale.
[[gnu::always_inline]] inline void scale_signed(float* values, const std::int8_t* signs,
                                                std::size_t n, float scale) {
  for (std::size_t j = 0; j < n; ++j) values[j] *= scale * static_cast<float>(signs[j]);
}

[[gnu::always_inline]] inline void rotate_any(const Rotation& rotation, float* values) {
  const std::size_t block = rotation.block(), rest = rotation.dim - block;
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (std::size_t round = 0; round < rotation.n_rounds; ++round) {
    const std::int8_t* const signs = rotation.signs + round * rotation.dim;
    const bool is_first = round % 2 == 0;
    const std::size_t at = is_first ? 0 : rest, other = is_first ? block : 0;
    scale_signed(values + other, signs + other, rest, 1.0f);
    scale_signed(values + at, signs + at, block, scale);
    hadamard(values + at, block);
  }
}

// Rotates `dim` values in place.
using Rotate = void (*)(const Rotation& rotation, float* values);

namespace portable {
inline void rotate(const Rotation& rotation, float* values) { rotate_any(rotation, values); }
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
__attribute__((target("avx2"))) inline void rotate(const Rotation& rotation, float* values) {
  rotate_any(rotation, values);
}
}  // namespace avx2
#endif

inline Rotate rotate_kernel([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  if (level != "portable") return avx2::rotate;
#endif
  return portable::rotate;
}

}  // namespace l2route
