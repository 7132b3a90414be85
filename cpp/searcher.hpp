// A graph, the space that routes on it and the original vectors: everything a query needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "beam_search.hpp"
#include "distance.hpp"
#include "graph.hpp"
#include "parallel.hpp"

namespace l2route {

// What one search may spend and must return.
struct Limits {
  std::size_t k = 1;        // answers
  std::size_t routing = 0;  // scores of routing vectors
  std::size_t beam = 0;     // width of the beam; 0 for as wide as the budget
  std::size_t rerank = 0;   // true distances of the best routed; 0 where routing scores are true
};

// Where a batch's answers go; rows of k, one count per query.
struct Answers {
  std::int64_t* ids;
  float* distances;
  std::int32_t* n_routing;
  std::int32_t* n_rerank;
  std::int32_t* n_hops;
};

class Searcher {
 public:
  GraphView graph;
  Rows routing;
  std::optional<Rows> projection;  // rows of the query matrix; none for the identity
  std::optional<Rows> original;    // for the true distances; none where routing scores are true
  std::size_t dim = 0;             // of a query as it comes
  std::size_t routing_dim = 0;     // of a query as it routes

  void search(const float* queries, std::size_t n, const Limits& limits, std::size_t n_threads,
              const Answers& answers) const {
    parallel_for(n, n_threads, [&](std::size_t i) {
      NoTrace trace;
      answer(queries + i * dim, limits, trace, i, answers);
    });
  }

  void search_traced(const float* queries, std::size_t n, const Limits& limits,
                     std::size_t n_threads, const Answers& answers,
                     std::vector<RecordTrace>& traces) const {
    traces.resize(n);
    parallel_for(n, n_threads,
                 [&](std::size_t i) { answer(queries + i * dim, limits, traces[i], i, answers); });
  }

 private:
  struct QueryScratch {
    Scratch walk;
    std::vector<float> query;   // padded to the original rows' width
    std::vector<float> routed;  // padded to the routing rows' width
    std::vector<VertexId> ids;
    std::vector<float> scores;
  };

  template <class Tracer>
  void answer(const float* query, const Limits& limits, Tracer& tracer, std::size_t i,
              const Answers& answers) const {
    thread_local QueryScratch scratch;
    pad(query, scratch.query);
    const float* routed = route_query(scratch);
    if (limits.beam == 0) {
      walk(scratch, scratch.walk.heap, graph.bottom.n, routed, limits, tracer, i, answers);
      return;
    }
    const std::size_t beam = std::max({limits.beam, limits.k, limits.rerank});
    if (beam <= SortedFrontier::kMaxCapacity) {
      walk(scratch, scratch.walk.sorted, beam, routed, limits, tracer, i, answers);
    } else {
      walk(scratch, scratch.walk.heap, beam, routed, limits, tracer, i, answers);
    }
  }

  template <class Frontier, class Tracer>
  void walk(QueryScratch& scratch, Frontier& frontier, std::size_t beam, const float* routed,
            const Limits& limits, Tracer& tracer, std::size_t i, const Answers& answers) const {
    Scorer scorer(routing, routed);
    frontier.reset(beam);
    Walk<Frontier, Tracer> walk(graph, scorer, frontier, tracer, limits.routing, scratch.walk);
    walk.run();
    answers.n_routing[i] = static_cast<std::int32_t>(scorer.n_computed());
    answers.n_hops[i] = static_cast<std::int32_t>(walk.n_hops());

    std::vector<Key>& best = scratch.walk.best;
    frontier.best(original ? limits.rerank : limits.k, best);
    answers.n_rerank[i] = static_cast<std::int32_t>(original ? best.size() : 0);
    if (original) rerank(scratch, best);
    for (std::size_t rank = 0; rank < limits.k; ++rank) {
      const bool found = rank < best.size();
      answers.ids[i * limits.k + rank] = found ? vertex_of(best[rank]) : -1;
      answers.distances[i * limits.k + rank] =
          found ? score_of(best[rank]) : std::numeric_limits<float>::infinity();
    }
  }

  void rerank(QueryScratch& scratch, std::vector<Key>& best) const {
    scratch.ids.resize(best.size());
    scratch.scores.resize(best.size());
    for (std::size_t r = 0; r < best.size(); ++r) {
      scratch.ids[r] = vertex_of(best[r]);
      original->prefetch(scratch.ids[r]);
    }
    Scorer scorer(*original, scratch.query.data());
    scorer.score(scratch.ids.data(), best.size(), scratch.scores.data());
    for (std::size_t r = 0; r < best.size(); ++r) {
      best[r] = make_key(scratch.scores[r], scratch.ids[r]);
    }
    std::sort(best.begin(), best.end());
  }

  // Rows are padded with zeros; a query must be padded with zeros too.
  void pad(const float* query, std::vector<float>& padded) const {
    padded.assign((dim + kLanes - 1) / kLanes * kLanes, 0.0f);
    std::copy_n(query, dim, padded.begin());
  }

  const float* route_query(QueryScratch& scratch) const {
    if (!projection) return scratch.query.data();
    scratch.ids.resize(routing_dim);
    for (std::size_t row = 0; row < routing_dim; ++row) {
      scratch.ids[row] = static_cast<VertexId>(row);
    }
    scratch.routed.assign(routing.width, 0.0f);
    Scorer scorer(*projection, scratch.query.data());
    scorer.score(scratch.ids.data(), routing_dim, scratch.routed.data());
    for (float& value : scratch.routed) value = -value;  // a score is a negated inner product
    return scratch.routed.data();
  }
};

}  // namespace l2route
