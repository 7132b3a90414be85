// Walks recorded at every level of a rule, to learn the rule from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "search/searcher.hpp"
#include "search/stopping.hpp"
#include "threads/parallel.hpp"
#include "threads/pulse.hpp"

namespace l2route {

// Arrays of n queries: features [n, n_levels, kStopFeatures], n_scored [n, n_levels], and the best
// vertices [n, n_levels, n_best].
struct Recording {
  const float* factors;  // of squared distances, by level, ascending
  std::size_t n_levels;
  float* features;
  std::int32_t* n_scored;
  VertexId* best;
  std::size_t n_best;

  StopRecorder of(std::size_t query) const {
    const std::size_t first = query * n_levels;
    return {features + first * kStopFeatures, n_scored + first, best + first * n_best, n_best};
  }
};

// Walks from level to level with every query; the limits have k, a rerank, a rule, and a budget
// that no walk reaches. A walk that finds fewer than k vertices meets no level: its features stay
// as they are.
inline void record_walks(const Searcher& searcher, const float* queries, std::size_t n,
                         const Limits& limits, std::size_t n_threads, const Recording& recording,
                         Pulse& pulse) {
  using Lane = Searcher::Lane<SortedFrontier, NoTrace, Everything, ByRecorder>;
  const std::size_t beam = std::max({StopRule::kBeam, limits.k, limits.rerank});
  parallel_for(n, n_threads, pulse, [&](std::size_t i) {
    auto& scratch = *Searcher::own_scratch();
    const float* const routed = searcher.prepare(queries + i * searcher.dim, scratch);
    const StopRecorder recorder = recording.of(i);
    const ByRecorder stop(recording.factors, recording.n_levels, 0, recorder, scratch.walk.aside);
    NoTrace none;
    std::optional<Lane> lane;
    lane.emplace(searcher, routed, std::min(beam, searcher.graph.bottom.n), limits, none, scratch,
                 Everything{}, stop);
    searcher.walk_abreast(&lane, 1, pulse);
    recorder.fill(lane->frontier, recording.n_levels, lane->scorer.n_computed());
  });
}

}  // namespace l2route
