// Hops from every vertex to each of up to 512 targets: one breadth-first search for all of them.
//
// A set of targets is one cache line of bits per vertex. Going backwards from the targets, u
// reaches in L hops what its out-neighbours reach in L - 1: the OR of their lines, so no reversed
// graph is needed. Hops are kept bit-sliced: four bits, of 64 targets at a time, stand side by
// side.
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
using TargetSet = std::array<std::uint64_t, kBlockWords>;

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
  explicit HopSearch(const Adjacency& graph)
      : graph_(graph), reached_(graph.n), frontier_(graph.n), next_(graph.n), active_(graph.n) {}

  // Writes the hops to every target into `planes`, n · words_per_vertex() words.
  void run(const std::int32_t* targets, std::size_t n_targets, std::uint64_t* planes) {
    std::fill(reached_.begin(), reached_.end(), TargetSet{});
    std::fill(frontier_.begin(), frontier_.end(), TargetSet{});
    std::fill(active_.begin(), active_.end(), std::uint8_t{0});
    std::fill_n(planes, graph_.n * HopBlock::words_per_vertex(), ~std::uint64_t{0});
    all_ = TargetSet{};
    for (std::size_t t = 0; t < n_targets; ++t) {
      const auto vertex = static_cast<std::size_t>(targets[t]);
      const std::uint64_t bit = std::uint64_t{1} << (t % 64);
      frontier_[vertex][t / 64] |= bit;
      reached_[vertex][t / 64] |= bit;
      all_[t / 64] |= bit;
      active_[vertex] = 1;
    }
    write_level(0, frontier_, planes);
    for (unsigned level = 1; advance(); ++level) {
      write_level(std::min(level, kMaxHops), frontier_, planes);
    }
  }

 private:
  // One level: returns whether any vertex reached a target that it had not.
  bool advance() {
    bool any = false;
    next_active_.assign(graph_.n, 0);
    for (std::size_t u = 0; u < graph_.n; ++u) {
      if (reached_[u] == all_) continue;
      TargetSet found{};
      const std::int32_t* row = graph_.row(u);
      bool touched = false;
      for (std::size_t i = 0; i < graph_.width && row[i] >= 0; ++i) {
        const auto neighbor = static_cast<std::size_t>(row[i]);
        if (active_[neighbor] == 0) continue;
        touched = true;
        for (std::size_t w = 0; w < kBlockWords; ++w) found[w] |= frontier_[neighbor][w];
      }
      if (!touched) continue;
      std::uint64_t fresh = 0;
      for (std::size_t w = 0; w < kBlockWords; ++w) {
        found[w] &= ~reached_[u][w];
        fresh |= found[w];
      }
      if (fresh == 0) continue;
      for (std::size_t w = 0; w < kBlockWords; ++w) reached_[u][w] |= found[w];
      next_[u] = found;
      next_active_[u] = 1;
      any = true;
    }
    std::swap(frontier_, next_);
    std::swap(active_, next_active_);
    return any;
  }

  // Planes start as all ones, which is kUnreachable; a level clears the bits that it lacks.
  void write_level(unsigned level, const std::vector<TargetSet>& found, std::uint64_t* planes) {
    for (std::size_t u = 0; u < graph_.n; ++u) {
      if (active_[u] == 0) continue;
      std::uint64_t* row = planes + u * HopBlock::words_per_vertex();
      for (std::size_t w = 0; w < kBlockWords; ++w) {
        for (std::size_t bit = 0; bit < kHopPlanes; ++bit) {
          if ((level >> bit & 1u) == 0) row[w * kHopPlanes + bit] &= ~found[u][w];
        }
      }
    }
  }

  Adjacency graph_;
  std::vector<TargetSet> reached_;
  std::vector<TargetSet> frontier_;  // meaningful where active_
  std::vector<TargetSet> next_;
  std::vector<std::uint8_t> active_;
  std::vector<std::uint8_t> next_active_;
  TargetSet all_{};
};

}  // namespace l2route
