// Hops from every vertex to each of up to 512 targets, by one breadth-first search for all targets.
//
// A set of targets is one cache line of bits per vertex. A vertex reaches in L hops what its
// out-neighbours reach in L - 1, the OR of their lines, so no reversed graph is needed. Hops are
// bit-sliced: the four bits of 64 targets are adjacent words. Besides the result a search takes two
// lines, 128 bytes, per vertex.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "search/graph.hpp"

namespace l2route {

inline constexpr std::size_t kBlockTargets = 512;
inline constexpr std::size_t kBlockWords = kBlockTargets / 64;
inline constexpr std::size_t kHopPlanes = 4;
inline constexpr unsigned kMaxHops = 14;  // means 14 hops or more
inline constexpr unsigned kUnreachable = 15;

// One bit per target of a block.
struct TargetSet {
  std::array<std::uint64_t, kBlockWords> words{};

  void add(std::size_t target) { words[target / 64] |= std::uint64_t{1} << (target % 64); }
  bool operator==(const TargetSet&) const = default;
};

// Hops of one block: planes[vertex][word][bit], so that a look-up touches one cache line.
struct HopBlock {
  const std::uint64_t* planes = nullptr;

  static constexpr std::size_t words_per_vertex() { return kBlockWords * kHopPlanes; }

  const std::uint64_t* bits(std::size_t vertex, std::size_t target) const {
    return planes + vertex * words_per_vertex() + target / 64 * kHopPlanes;
  }

  unsigned hops(std::size_t vertex, std::size_t target) const {
    const std::uint64_t* four = bits(vertex, target);
    unsigned hops = 0;
    for (std::size_t bit = 0; bit < kHopPlanes; ++bit) {
      hops |= static_cast<unsigned>((four[bit] >> (target % 64)) & 1u) << bit;
    }
    return hops;
  }
};

// Allocates on huge pages, where the system has them. Lines are read in random order; with small
// pages address translation dominates, and the search takes half as long again.
template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t kPage = std::size_t{1} << 21;

  T* allocate(std::size_t n) {
    void* memory = ::operator new(n * sizeof(T), std::align_val_t{kPage});
#ifdef MADV_HUGEPAGE
    // Whole pages only, so that no more memory is used than asked for. Advice may be declined.
    madvise(memory, n * sizeof(T) / kPage * kPage, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{kPage}); }
  bool operator==(const HugePages&) const = default;
};

class HopSearch {
 public:
  explicit HopSearch(const Adjacency& graph) : graph_(graph), reached_(graph.n), next_(graph.n) {}

  // Writes the hops to every target into `planes`, n · words_per_vertex() words.
  void run(const VertexId* targets, std::size_t n_targets, std::uint64_t* planes, Pulse& pulse) {
    std::fill(reached_.begin(), reached_.end(), TargetSet{});
    std::fill_n(planes, graph_.n * HopBlock::words_per_vertex(), ~std::uint64_t{0});
    all_ = TargetSet{};
    for (std::size_t t = 0; t < n_targets; ++t) {
      const auto vertex = static_cast<std::size_t>(targets[t]);
      reached_[vertex].add(t);
      all_.add(t);
      write_hops(0, reached_[vertex], planes + vertex * HopBlock::words_per_vertex());
    }
    for (unsigned level = 1; advance(std::min(level, kMaxHops), planes, pulse); ++level) {
    }
  }

 private:
  // Distance of the prefetch in rows; reading neighbours' lines takes nearly all of the time.
  static constexpr std::size_t kAhead = 4;

  // One level; returns whether any vertex reached a new target.
  bool advance(unsigned level, std::uint64_t* planes, Pulse& pulse) {
    // Local copies: the compiler must assume that writes to the planes may change members.
    const TargetSet* reached = reached_.data();
    TargetSet* next = next_.data();
    const TargetSet all = all_;
    const Adjacency graph = graph_;
    bool any = false;
    for (std::size_t u = 0; u < graph.n; ++u) {
      if (u % kVerticesPerBeat == 0) pulse.beat();
      if (u + kAhead < graph.n && reached[u + kAhead] != all) {
        for_neighbors(graph, u + kAhead, [&](std::size_t v) { __builtin_prefetch(&reached[v]); });
      }
      TargetSet now = reached[u];
      if (now != all) {
        for_neighbors(graph, u, [&](std::size_t v) {
          for (std::size_t w = 0; w < kBlockWords; ++w) now.words[w] |= reached[v].words[w];
        });
        TargetSet found;
        std::uint64_t fresh = 0;
        for (std::size_t w = 0; w < kBlockWords; ++w) {
          found.words[w] = now.words[w] & ~reached[u].words[w];
          fresh |= found.words[w];
        }
        if (fresh != 0) {
          write_hops(level, found, planes + u * HopBlock::words_per_vertex());
          any = true;
        }
      }
      next[u] = now;
    }
    std::swap(reached_, next_);
    return any;
  }

  // Calls call(v) for every neighbour v.
  template <class Call>
  static void for_neighbors(const Adjacency& graph, std::size_t vertex, const Call& call) {
    const VertexId* row = graph.row(vertex);
    for (std::size_t i = 0; i < graph.width && row[i] >= 0; ++i) {
      call(static_cast<std::size_t>(row[i]));
    }
  }

  // Planes start as all ones, which is kUnreachable; a level clears the bits that it lacks.
  static void write_hops(unsigned level, const TargetSet& found, std::uint64_t* row) {
    for (std::size_t bit = 0; bit < kHopPlanes; ++bit) {
      if ((level >> bit & 1u) != 0) continue;
      for (std::size_t w = 0; w < kBlockWords; ++w) row[w * kHopPlanes + bit] &= ~found.words[w];
    }
  }

  Adjacency graph_;
  using TargetSets = std::vector<TargetSet, HugePages<TargetSet>>;
  TargetSets reached_;  // targets within the hops of the last level
  TargetSets next_;
  TargetSet all_;
};

}  // namespace l2route
