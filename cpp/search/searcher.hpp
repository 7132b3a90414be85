// Answers queries: walks on a graph in a routing space, then reranks by the original vectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/rotation.hpp"
#include "kernels/rows.hpp"
#include "search/beam_search.hpp"
#include "search/entry_table.hpp"
#include "search/graph.hpp"
#include "search/limits.hpp"
#include "search/nearest.hpp"
#include "search/queries.hpp"
#include "search/ways.hpp"
#include "threads/parallel.hpp"
#include "threads/pulse.hpp"

namespace l2route {

class Searcher {
 public:
  // Queries that a thread walks with at a time: while one waits for memory, another is scored.
  static constexpr std::size_t kAbreast = 2;

  GraphView graph;
  Rows routing;
  std::optional<Rows> projection;       // rows of the query matrix; none for the identity
  std::optional<Rotation> rotation;     // of queries, in place of a query matrix
  const float* query_centre = nullptr;  // subtracted from queries before the projection; null for 0
  const float* centre = nullptr;        // subtracted from queries in the routing space; null for 0
  std::optional<Rows> original;         // for reranking; none where routing scores are exact
  const EntryTable* entry_table = nullptr;  // null to start at the entry points of the graph
  std::size_t max_entry_cost = 0;           // most scores that finding entry points is worth
  std::size_t dim = 0;                      // of queries
  std::size_t routing_dim = 0;              // of queries in the routing space
  float origin = 0;        // score + origin·|q|²/2 is proportional to the squared distance
  bool is_cosine = false;  // queries are scaled to length 1, and 1 is added to scores

  void search(const float* queries, std::size_t n, const Limits& limits, std::size_t n_threads,
              const Answers& answers, Pulse& pulse) const {
    std::vector<NoTrace> none(n);
    search_traced(queries, n, limits, n_threads, answers, none, pulse);
  }

  template <class Tracer>
  void search_traced(const float* queries, std::size_t n, const Limits& limits,
                     std::size_t n_threads, const Answers& answers, std::vector<Tracer>& traces,
                     Pulse& pulse) const {
    const Batch<Tracer> batch{queries, 0, n, traces.data(), pulse};
    parallel_take(n, n_threads, pulse,
                  [&](const auto& take) { answer(batch, limits, answers, take); });
  }

  static constexpr std::size_t kStepsPerBeat = 64;

  struct QueryScratch {
    Scratch walk;
    std::vector<float> query;    // padded to the original rows' width
    std::vector<float> centred;  // the same, less the centre of queries
    std::vector<float> routed;   // padded to the routing rows' width
    std::vector<std::int8_t> codes;
    std::vector<VertexId> ids;
    std::vector<float> scores;
    Nearest nearest;
    EntryScratch entry;
  };

  // Not inlined, so that the thread-local address is looked up once per query, not at every use.
  [[gnu::noinline]] static QueryScratch* own_scratch() {
    thread_local QueryScratch scratch[Scorer::kMaxBlock];
    return scratch;
  }

  // Queries that one thread answers side by side.
  template <class Tracer>
  struct Batch {
    const float* queries;
    std::size_t first;  // number of the first of them in the call
    std::size_t n;
    Tracer* traces;
    Pulse& pulse;
  };

  template <class Frontier, class Tracer, class Gate = Everything, class Stop = ByLimits>
  struct Lane {
    QueryScratch& scratch;
    Frontier& frontier;
    const std::size_t budget;
    Scorer scorer;
    Walk<Frontier, Tracer, Gate, Stop> walk;

    Lane(const Searcher& searcher, const float* routed, std::size_t beam, const Limits& limits,
         Tracer& tracer, QueryScratch& own, const Gate& gate = {}, const Stop& stop = {})
        : scratch(own),
          frontier(own.walk.frontier<Frontier>()),
          budget(limits.routing + (limits.is_budgeted ? 0 : searcher.max_entry_cost)),
          scorer(searcher.routing, routed, &own.codes),
          walk(searcher.graph, scorer, frontier, tracer, budget, own.walk,
               searcher.slack_of(limits, routed), gate, stop) {
      frontier.reset(beam);
    }

    // Starts at the entry points of the query's cluster if the budget allows to find them, and at
    // the first of the graph.
    void start(const Searcher& searcher) {
      const EntryTable* const table = searcher.entry_table;
      if (Gate::kLooks || table == nullptr || searcher.max_entry_cost >= budget) {
        walk.start();
        return;
      }
      scorer.charge(table->find(scratch.query.data(), searcher.routing_dim, scratch.entry));
      std::vector<VertexId>& entries = scratch.entry.entries;
      entries.push_back(load_id(searcher.graph.entries));
      walk.start_at(entries.data(), entries.size());
    }
  };

  // Walks with several queries in turns, from start to end.
  template <class Lane>
  void walk_abreast(std::optional<Lane>* lanes, std::size_t n_lanes, Pulse& pulse) const {
    std::size_t walking[kAbreast];
    for (std::size_t i = 0; i < n_lanes; ++i) {
      lanes[i]->start(*this);
      walking[i] = i;
    }
    for (std::size_t n = n_lanes, step = 1; n > 0; ++step) {
      if (step % kStepsPerBeat == 0) pulse.beat();
      std::size_t n_left = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (lanes[walking[i]]->walk.gather()) walking[n_left++] = walking[i];
      }
      n = n_left;
      for (std::size_t i = 0; i < n; ++i) lanes[walking[i]]->walk.absorb();
    }
  }

  // Pads a query and maps it into the routing space.
  const float* prepare(const float* query, QueryScratch& scratch) const {
    pad(query, scratch.query);
    return route_query(scratch);
  }

  // Pads a query with zeros to the widest of the rows that are scored against it.
  void pad(const float* query, std::vector<float>& padded) const {
    const std::size_t mapped = projection ? projection->width : 0;
    padded.assign(std::max({(dim + kLanes - 1) / kLanes * kLanes, routing.width, mapped}), 0.0f);
    if (is_cosine) {
      normalize(query, dim, padded.data());
    } else {
      std::copy_n(query, dim, padded.begin());
    }
  }

  // Maps a padded query into the routing space.
  const float* route_query(QueryScratch& scratch) const {
    if (!projection && !rotation && centre == nullptr) return scratch.query.data();
    if (projection) {
      project(scratch);
    } else {
      scratch.routed.assign(scratch.query.begin(), scratch.query.begin() + routing.width);
    }
    if (rotation) routing.rotate(*rotation, scratch.routed.data());
    if (centre != nullptr) {
      for (std::size_t j = 0; j < routing_dim; ++j) scratch.routed[j] -= centre[j];
    }
    return scratch.routed.data();
  }

  void project(QueryScratch& scratch) const {
    scratch.ids.resize(routing_dim);
    for (std::size_t row = 0; row < routing_dim; ++row) {
      scratch.ids[row] = static_cast<VertexId>(row);
    }
    scratch.routed.assign(routing.width, 0.0f);
    const float* query = scratch.query.data();
    if (query_centre != nullptr) {
      scratch.centred = scratch.query;
      for (std::size_t j = 0; j < dim; ++j) scratch.centred[j] -= query_centre[j];
      query = scratch.centred.data();
    }
    Scorer scorer(*projection, query, &scratch.codes);
    scorer.score(scratch.ids.data(), routing_dim, scratch.routed.data());
    for (float& value : scratch.routed) value = -value;  // a score is a negated inner product
  }

  // Reranks by the original vectors, if there are any, and writes the answers of query i. The
  // vectors should have been prefetched.
  void finish(QueryScratch& scratch, std::vector<Key>& best, const Limits& limits, std::size_t i,
              const Answers& answers) const {
    answers.n_rerank[i] = static_cast<std::int32_t>(original ? best.size() : 0);
    if (original) rerank(scratch, best);
    write(best, limits.k, i, answers);
  }

  // Takes the best of a walk that is over, and prefetches the vectors that they are reranked by.
  template <class Lane>
  void take_best(Lane& lane, const Limits& limits, const Answers& answers) const {
    std::vector<Key>& best = lane.scratch.walk.best;
    lane.frontier.best(n_taken(limits, answers), best);
    prefetch_original(best);
  }

  // Always inlined, as all functions that only prefetch: GCC drops other calls of them.
  [[gnu::always_inline]] void prefetch_original(const std::vector<Key>& best) const {
    if (!original) return;
    for (const Key key : best) original->prefetch(vertex_of(key));
  }

  // Vertices to take from a frontier for k answers: more than k where some may be dropped.
  std::size_t n_taken(const Limits& limits, const Answers& answers) const {
    if (original) return limits.rerank;
    return answers.n_updates == nullptr ? limits.k : 2 * limits.k;
  }

  // Writes the answers of query i: the k best by true distance whose labels are not −1.
  void write(const std::vector<Key>& best, std::size_t k, std::size_t i,
             const Answers& answers) const {
    std::int64_t* const ids = answers.ids + i * k;
    float* const distances = answers.distances + i * k;
    std::size_t n_found = 0;
    for (std::size_t rank = 0; rank < best.size() && n_found < k; ++rank) {
      const std::int64_t id = answers.label_of(vertex_of(best[rank]));
      if (id == -1) continue;
      if (answers.may_repeat() && std::find(ids, ids + n_found, id) != ids + n_found) continue;
      ids[n_found] = id;
      distances[n_found++] = distance_of(score_of(best[rank]));
    }
    std::fill(ids + n_found, ids + k, -1);
    std::fill(distances + n_found, distances + k, std::numeric_limits<float>::infinity());
  }

  // Distance in the metric's convention; rounded unit vectors may be slightly longer than 1.
  float distance_of(float score) const { return is_cosine ? std::max(score + 1.0f, 0.0f) : score; }

  // Ranks vertices by the original vectors.
  void rerank(QueryScratch& scratch, std::vector<Key>& best) const {
    const std::size_t n = best.size();
    scratch.ids.resize(n);
    scratch.scores.resize(n);
    std::transform(best.begin(), best.end(), scratch.ids.begin(), vertex_of);
    Scorer scorer(*original, scratch.query.data());
    scorer.score(scratch.ids.data(), n, scratch.scores.data());
    best.resize(n + kKeyRoom);
    original->near_keys(scratch.scores.data(), scratch.ids.data(), n,
                        std::numeric_limits<float>::infinity(), 0, best.data());
    best.resize(n);
  }

  // The slack of a search, that of a rule's first level if there is one.
  Slack slack_of(const Limits& limits, const float* routed) const {
    if (limits.rule == nullptr && limits.slack < 0) return {};
    const auto square = static_cast<float>(squared_length(routed, routing_dim));
    const float squared = (1 + limits.slack) * (1 + limits.slack);
    const float factor = limits.rule != nullptr ? limits.rule->factors[limits.rule->first]
                                                : std::min(squared, kLargest);
    return {limits.k, std::max(limits.k, limits.rerank), factor, 0.5f * origin * square};
  }

 private:
  static constexpr float kLargest = std::numeric_limits<float>::max();  // inf · 0 would be NaN

  // Frontiers never need more room than there are vertices.
  template <class Tracer, class Take>
  void answer(const Batch<Tracer>& batch, const Limits& limits, const Answers& answers,
              const Take& take) const {
    if (limits.rule != nullptr) {
      walk_by_rule(batch, limits, answers, take);
    } else if (limits.beam == 0) {
      walk<HeapFrontier>(batch, graph.bottom.n, limits, answers, take);
    } else if (const std::size_t beam = widest(limits);
               beam <= SortedFrontier::kMaxCapacity || limits.slack >= 0) {
      walk<SortedFrontier>(batch, std::min(beam, graph.bottom.n), limits, answers, take);
    } else {
      walk<HeapFrontier>(batch, std::min(beam, graph.bottom.n), limits, answers, take);
    }
  }

  // Vertices that the frontier of a search has room for.
  static std::size_t widest(const Limits& limits) {
    return std::max({limits.beam, limits.k, limits.rerank});
  }

  template <class Frontier, class Tracer, class Take>
  void walk(const Batch<Tracer>& batch, std::size_t beam, const Limits& limits,
            const Answers& answers, const Take& take) const {
    using OwnLane = Lane<Frontier, Tracer>;
    const auto prepared = [&](std::optional<OwnLane>& lane, std::size_t i, QueryScratch& scratch) {
      const float* routed = prepare(batch.queries + i * dim, scratch);
      lane.emplace(*this, routed, beam, limits, batch.traces[i], scratch);
    };
    walk_in_turns<OwnLane>(take, prepared, limits, answers, batch.pulse);
  }

  template <class Tracer, class Take>
  void walk_by_rule(const Batch<Tracer>& batch, const Limits& limits, const Answers& answers,
                    const Take& take) const {
    using OwnLane = Lane<SortedFrontier, Tracer, Everything, ByRule>;
    const StopRule& rule = *limits.rule;
    const std::size_t beam = std::min(std::max(widest(limits), StopRule::kBeam), graph.bottom.n);
    const auto prepared = [&](std::optional<OwnLane>& lane, std::size_t i, QueryScratch& scratch) {
      const float* routed = prepare(batch.queries + i * dim, scratch);
      const ByRule stop(rule.factors, rule.n_levels, rule.first, RuleJudge{&rule},
                        scratch.walk.aside);
      lane.emplace(*this, routed, beam, limits, batch.traces[i], scratch, Everything{}, stop);
    };
    walk_in_turns<OwnLane>(take, prepared, limits, answers, batch.pulse);
  }

  // Answers the queries that `take` hands out, kAbreast at a time: one that is done gives its place
  // to the next.
  template <class Lane, class Take, class Prepare>
  void walk_in_turns(const Take& take, const Prepare& prepared, const Limits& limits,
                     const Answers& answers, Pulse& pulse) const {
    QueryScratch* const scratch = own_scratch();
    std::optional<Lane> lanes[kAbreast];
    std::size_t at[kAbreast], walking[kAbreast], n = 0;
    bool is_over[kAbreast];
    const auto begin = [&](std::size_t place) {
      const std::optional<std::size_t> i = take();
      if (!i) return false;
      prepared(lanes[place], *i, scratch[place]);
      lanes[place]->start(*this);
      at[place] = *i;
      return true;
    };
    while (n < kAbreast && begin(n)) {
      walking[n] = n;
      ++n;
    }
    for (std::size_t step = 1; n > 0; ++step) {
      if (step % kStepsPerBeat == 0) pulse.beat();
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t place = walking[i];
        is_over[place] = !lanes[place]->walk.gather();
        if (is_over[place]) take_best(*lanes[place], limits, answers);
      }
      std::size_t n_left = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t place = walking[i];
        if (!is_over[place]) {
          lanes[place]->walk.absorb();
        } else {
          write_answer(*lanes[place], limits, at[place], answers);
          if (!begin(place)) continue;
        }
        walking[n_left++] = place;
      }
      n = n_left;
    }
  }

  template <class Lane>
  void write_answer(Lane& lane, const Limits& limits, std::size_t at,
                    const Answers& answers) const {
    answers.n_routing[at] = static_cast<std::int32_t>(lane.scorer.n_computed());
    answers.n_hops[at] = static_cast<std::int32_t>(lane.walk.n_hops());
    answers.n_looked[at] = 0;
    finish(lane.scratch, lane.scratch.walk.best, limits, at, answers);
  }
};

}  // namespace l2route
