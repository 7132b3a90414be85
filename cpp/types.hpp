// Types and constants that every part of the core shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace l2route {

using VertexId = std::int32_t;

inline constexpr std::size_t kLanes = 16;      // rows of floats are padded to a multiple of it
inline constexpr std::size_t kCodeLanes = 64;  // rows of codes are padded to so many bytes
inline constexpr std::size_t kCacheLine = 64;  // bytes

enum class ScoreKind { l2, inner_product };

// An IEEE half float: one bit of sign, five of exponent, ten of fraction.
struct Half {
  std::uint16_t bits;
};

// Element types of rows. A code takes a byte, a half code four bits, a quarter code two.
enum class Element { single, half, code, half_code, quarter_code };

// Bits of a code; 0 for floats.
inline constexpr unsigned code_bits(Element element) {
  return element == Element::code           ? 8
         : element == Element::half_code    ? 4
         : element == Element::quarter_code ? 2
                                            : 0;
}

inline constexpr bool is_code(Element element) { return code_bits(element) != 0; }

// Number of elements that rows are padded to a multiple of.
inline std::size_t row_lanes(Element element) {
  return is_code(element) ? kCodeLanes * 8 / code_bits(element) : kLanes;
}

}  // namespace l2route
