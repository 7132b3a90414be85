// Hops from every vertex to each of up to 512 targets: one breadth-first search for all of them.
//
// A set of targets is one cache line of bits per vertex. Going backwards from the targets, u
// reaches in L hops what its out-neighbours reach in L - 1: the OR of their lines, so no reversed
// graph is needed. Hops are kept bit-sliced: four bits, of 64 targets at a time, stand side by
// side. Beside the result a search holds two lines per vertex, 128 bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace l2route {

inline constexpr std::size_t kBlockTargets = 512;
inline constexpr std::size_t kBlockWords = kBlockTargets / 64;
inline constexpr std::size_t kHopPlanes = 4;
inline constexpr unsigned kMaxHops = 14;  // stands for 14 hops or more
inline constexpr unsigned kUnreachable = 15;

// A vertex's bits about all targets of a block.
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

class HopSearch {
 public:
  explicit HopSearch(const Adjacency& graph) : graph_(graph), reached_(graph.n), next_(graph.n) {}

  // Writes the hops to every target into `planes`, n · words_per_vertex() words.
  void run(const std::int32_t* targets, std::size_t n_targets, std::uint64_t* planes) {
    std::fill(reached_.begin(), reached_.end(), TargetSet{});
    std::fill_n(planes, graph_.n * HopBlock::words_per_vertex(), ~std::uint64_t{0});
    all_ = TargetSet{};
    for (std::size_t t = 0; t < n_targets; ++t) {
      const auto vertex = static_cast<std::size_t>(targets[t]);
      reached_[vertex].add(t);
      all_.add(t);
      write_hops(0, reached_[vertex], planes + vertex * HopBlock::words_per_vertex());
    }
    for (unsigned level = 1; advance(std::min(level, kMaxHops), planes); ++level) {
    }
  }

 private:
  // Rows ahead whose neighbours' lines are asked for; reading them is nearly all of the time.
  static constexpr std::size_t kAhead = 4;

  // One level: returns whether any vertex reached a target that it had not.
  bool advance(unsigned level, std::uint64_t* planes) {
    bool any = false;
    for (std::size_t u = 0; u < graph_.n; ++u) {
      if (u + kAhead < graph_.n) prefetch_neighbors(u + kAhead);
      next_[u] = reached_[u];
      if (reached_[u] == all_) continue;
      next_[u] = with_neighbors(u);
      TargetSet found;
      std::uint64_t fresh = 0;
      for (std::size_t w = 0; w < kBlockWords; ++w) {
        found.words[w] = next_[u].words[w] & ~reached_[u].words[w];
        fresh |= found.words[w];
      }
      if (fresh == 0) continue;
      write_hops(level, found, planes + u * HopBlock::words_per_vertex());
      any = true;
    }
    std::swap(reached_, next_);
    return any;
  }

  void prefetch_neighbors(std::size_t vertex) const {
    if (reached_[vertex] == all_) return;
    const std::int32_t* row = graph_.row(vertex);
    for (std::size_t i = 0; i < graph_.width && row[i] >= 0; ++i) {
      __builtin_prefetch(&reached_[static_cast<std::size_t>(row[i])]);
    }
  }

  // What a vertex or one of its neighbours has reached.
  TargetSet with_neighbors(std::size_t vertex) const {
    TargetSet either = reached_[vertex];
    const std::int32_t* row = graph_.row(vertex);
    for (std::size_t i = 0; i < graph_.width && row[i] >= 0; ++i) {
      const TargetSet& neighbor = reached_[static_cast<std::size_t>(row[i])];
      for (std::size_t w = 0; w < kBlockWords; ++w) either.words[w] |= neighbor.words[w];
    }
    return either;
  }

  // Planes start as all ones, which is kUnreachable; a level clears the bits that it lacks.
  static void write_hops(unsigned level, const TargetSet& found, std::uint64_t* row) {
    for (std::size_t bit = 0; bit < kHopPlanes; ++bit) {
      if ((level >> bit & 1u) != 0) continue;
      for (std::size_t w = 0; w < kBlockWords; ++w) row[w * kHopPlanes + bit] &= ~found.words[w];
    }
  }

  Adjacency graph_;
  std::vector<TargetSet> reached_;  // targets within the hops of the last level
  std::vector<TargetSet> next_;
  TargetSet all_;
};

}  // namespace l2route
