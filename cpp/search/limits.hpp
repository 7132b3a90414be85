// What a search is asked for, and where its answers go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "search/stopping.hpp"
#include "search/ways.hpp"
#include "types.hpp"

namespace l2route {

// Limits of walks through what does not pass a filter.
struct SieveLimits {
  std::size_t beam = 0;
  std::size_t rerank = 0;
  float slack = -1;
  std::size_t n_work = 0;  // without a filter, in scores, as measured
};

// Limits of one search.
struct Limits {
  std::size_t k = 1;        // answers
  std::size_t routing = 0;  // scores of routing vectors
  std::size_t beam = 0;     // beam width; 0 for unlimited
  std::size_t rerank = 0;   // vertices reranked by true distance; 0 where scores are exact
  float slack = -1;         // walk up to 1 + slack times the k-th best distance; negative: no limit
  const StopRule* rule = nullptr;  // ends walks in place of the slack; not under a filter

  // Under a filter:
  bool is_budgeted = false;     // whether scores of a walk and of a scan together are bounded
  std::size_t n_work = 0;       // of a walk, in scores, as measured; 0 if it was not
  std::size_t scan_rerank = 0;  // vertices that a scan of routing vectors reranks; 0 for a scan of
                                // the original vectors
  Way way = Way::any;           // the only way to answer; any for the one expected to be fastest
  std::optional<SieveLimits> sieve = {};  // none for those above
};

// Output arrays of a batch: ids and distances [n, k], and counts [n]. A vertex whose label is −1 is
// no answer.
struct Answers {
  std::int64_t* ids;
  float* distances;
  std::int32_t* n_routing;
  std::int32_t* n_rerank;
  std::int32_t* n_hops;
  std::int32_t* n_looked;
  const std::int64_t* labels = nullptr;  // labels of vertices; row numbers if null
  // Of an index that changes: differs from `since`, or is odd, while a label may be there twice.
  const std::atomic<std::uint64_t>* n_updates = nullptr;
  std::uint64_t since = 0;

  bool may_repeat() const {
    return n_updates != nullptr && (since % 2 == 1 || n_updates->load() != since);
  }

  std::int64_t label_of(VertexId vertex) const {
    return labels == nullptr ? vertex : __atomic_load_n(labels + vertex, __ATOMIC_RELAXED);
  }
};

}  // namespace l2route
