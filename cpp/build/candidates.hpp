// Walks that find candidates for neighbours: the vertices nearest to a vertex's own vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "build/prune.hpp"
#include "kernels/rows.hpp"
#include "live/links.hpp"
#include "search/beam_search.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// Ranks copies of other vertices behind all others: a walk is not filled with equal vectors.
struct CopiesLast {
  const std::uint8_t* is_copy;  // null if there are none
  const float* bias;            // of walked rows, or null

  // Always inlined: see Rows::prefetch.
  [[gnu::always_inline]] void prefetch(VertexId vertex) const {
    if (bias != nullptr) __builtin_prefetch(bias + vertex);
  }
  Key visit(VertexId vertex, float score, std::size_t) const {
    const bool is_last = is_copy != nullptr && is_copy[static_cast<std::size_t>(vertex)] != 0;
    return make_key(is_last ? std::numeric_limits<float>::infinity() : score, vertex);
  }
  void descend(VertexId) {}
  void expand(VertexId) {}
};

// The vertices that walks are made for.
struct Sought {
  const VertexId* vertices = nullptr;
  const float* const* queries = nullptr;  // as wide as walked rows; null for the exact rows
  std::size_t n = 0;
};

class Finder {
 public:
  GraphView graph;
  const std::uint8_t* is_copy = nullptr;
  Rows walked;  // by which walks score
  Rows exact;
  std::size_t ef = 0;  // beam width

  // The graph, entered at the neighbours of a vertex.
  GraphView from_neighbors(VertexId vertex) const {
    GraphView own = graph;
    own.entries = graph.bottom.row(static_cast<std::size_t>(vertex));
    own.n_entries = graph.bottom.width;
    return own;
  }

  // Calls take(i, scorer, best) for every vertex i < n sought: `best` are the `ef` best visited
  // that are not copies. Two walks at a time per thread. `start(i)` gives the view of the graph
  // whose entries the walk starts from; the vertex itself is not visited.
  template <class Start, class Take>
  void find(const Sought& sought, std::size_t n_threads, Pulse& pulse, const Start& start,
            const Take& take) const {
    constexpr std::size_t kAbreast = 2;
    parallel_for((sought.n + kAbreast - 1) / kAbreast, n_threads, pulse, [&](std::size_t group) {
      WalkScratch* const scratch = own_scratch();
      std::optional<Lane> lanes[kAbreast];
      const std::size_t first = group * kAbreast;
      const std::size_t n = std::min(kAbreast, sought.n - first);
      for (std::size_t i = 0; i < n; ++i) {
        const float* query = query_of(sought, first + i, scratch[i].query);
        lanes[i].emplace(*this, start(first + i), query, scratch[i]);
        lanes[i]->walk.hide(sought.vertices[first + i]);
        if (lanes[i]->graph.n_entries > 0) lanes[i]->walk.start();
      }
      run(lanes, n, pulse);
      for (std::size_t i = 0; i < n; ++i) take(first + i, lanes[i]->scorer, lanes[i]->best());
    });
  }

 private:
  static constexpr std::size_t kStepsPerBeat = 64;

  struct WalkScratch {
    Scratch walk;
    std::vector<float> query;
    std::vector<std::int8_t> codes;
  };

  [[gnu::noinline]] static WalkScratch* own_scratch() {
    thread_local WalkScratch scratch[2];
    return scratch;
  }

  struct Lane {
    GraphView graph;
    Scratch& scratch;
    CopiesLast tracer;
    Scorer scorer;
    Walk<SortedFrontier, CopiesLast> walk;

    Lane(const Finder& finder, GraphView from, const float* query, WalkScratch& own)
        : graph(std::move(from)),
          scratch(own.walk),
          tracer{finder.is_copy, finder.walked.bias},
          scorer(finder.walked, query, &own.codes),
          walk(graph, scorer, own.walk.sorted, tracer, std::numeric_limits<std::size_t>::max(),
               own.walk) {
      own.walk.sorted.reset(finder.ef);
    }

    std::vector<Key>& best() {
      scratch.sorted.best(std::numeric_limits<std::size_t>::max(), scratch.best);
      const Key first_copy = make_key(std::numeric_limits<float>::infinity(), 0);
      const auto end = std::lower_bound(scratch.best.begin(), scratch.best.end(), first_copy);
      scratch.best.erase(end, scratch.best.end());
      return scratch.best;
    }
  };

  template <std::size_t n_lanes>
  static void run(std::optional<Lane> (&lanes)[n_lanes], std::size_t n, Pulse& pulse) {
    bool is_walking[n_lanes] = {};
    std::fill_n(is_walking, n, true);
    const auto any = [&] { return std::find(is_walking, is_walking + n, true) != is_walking + n; };
    for (std::size_t step = 1; any(); ++step) {
      if (step % kStepsPerBeat == 0) pulse.beat();
      for (std::size_t i = 0; i < n; ++i) {
        is_walking[i] = is_walking[i] && lanes[i]->walk.gather();
      }
      for (std::size_t i = 0; i < n; ++i) {
        if (is_walking[i]) lanes[i]->walk.absorb();
      }
    }
  }

  const float* query_of(const Sought& sought, std::size_t i, std::vector<float>& query) const {
    if (sought.queries[i] != nullptr) return sought.queries[i];
    query.assign(std::max(walked.width, exact.width), 0.0f);
    copy_floats(exact, sought.vertices[i], query.data());
    return query.data();
  }
};

}  // namespace l2route
