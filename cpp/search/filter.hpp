// Filters: which vertices may be answers, and how walks treat the others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "types.hpp"

namespace l2route {

// A packed bitmap over vertices, bit v of word v / 64, and the labels of an index that changes:
// a vertex passes if its bit is set and its label is not −1. Either may be null, which passes
// everything. Vertices beyond the bitmap do not pass. The arrays belong to Python.
struct Filter {
  static constexpr std::size_t kMaxSample = 32;
  static constexpr std::size_t kBlock = 128;  // vertices of a scan at a time

  const std::uint64_t* words = nullptr;
  std::size_t n_bits = 0;
  const std::int64_t* labels = nullptr;
  std::size_t count = 0;             // vertices whose bit is set
  const VertexId* few = nullptr;     // those vertices, ascending, if they are few
  const VertexId* sample = nullptr;  // some of them, spread evenly: entry points
  std::size_t n_sample = 0;

  // No more vertices pass than this; without bits, `count` may grow during a search.
  std::size_t most(std::size_t n_vertices) const { return words == nullptr ? n_vertices : count; }

  bool has_bit(VertexId vertex) const {
    const auto at = static_cast<std::size_t>(vertex);
    if (words == nullptr) return true;
    return at < n_bits ? static_cast<bool>((words[at / 64] >> (at % 64)) & 1) : false;
  }

  // The label may become −1 at any time, in the index's other threads.
  bool is_alive(VertexId vertex) const {
    return labels == nullptr || __atomic_load_n(labels + vertex, __ATOMIC_ACQUIRE) != -1;
  }

  bool passes(VertexId vertex) const {
    return labels == nullptr ? has_bit(vertex) : has_bit(vertex) && is_alive(vertex);
  }

  // Calls visit(ids, n) for blocks of the vertices whose bit is set, ascending. A block is valid
  // until the next but one.
  template <class Visit>
  void each_block(std::size_t n_vertices, std::vector<VertexId>& buffer, const Visit& visit) const {
    if (few != nullptr) {
      for (std::size_t i = 0; i < count; i += kBlock) visit(few + i, std::min(kBlock, count - i));
      return;
    }
    buffer.resize(2 * kBlock);
    VertexId* block = buffer.data();
    std::size_t n = 0;
    const auto end = std::min(words == nullptr ? n_vertices : n_bits, n_vertices);
    for (std::size_t first = 0; first < end; first += 64) {
      std::uint64_t word = words == nullptr ? ~std::uint64_t{0} : words[first / 64];
      if (end - first < 64) word &= (std::uint64_t{1} << (end - first)) - 1;
      for (; word != 0; word &= word - 1) {
        block[n++] = static_cast<VertexId>(first) + std::countr_zero(word);
        if (n < kBlock) continue;
        visit(block, n);
        block = block == buffer.data() ? block + kBlock : buffer.data();
        n = 0;
      }
    }
    if (n > 0) visit(block, n);
  }
};

// Gates: policies of a walk. This one lets every vertex through and is empty.
struct Everything {
  static constexpr bool kSieves = false;
  static constexpr bool kLooks = false;
};

// Vertices that do not pass are walked through, but are no answers and do not count for the beam.
struct Sieve {
  static constexpr bool kSieves = true;
  static constexpr bool kLooks = false;
  const Filter* filter;
};

// Only vertices that pass are scored and expanded. Where a vertex has few such neighbours, the
// lists of the others are looked through for more.
struct LookThrough {
  static constexpr bool kSieves = false;
  static constexpr bool kLooks = true;
  const Filter* filter;
};

}  // namespace l2route
