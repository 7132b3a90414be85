// The search: Algorithm 1 of "Learning to Route in Similarity Graphs", under an exact budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/rows.hpp"
#include "search/filter.hpp"
#include "search/frontier.hpp"
#include "search/graph.hpp"
#include "search/scratch.hpp"
#include "search/stopping.hpp"
#include "search/trace.hpp"
#include "search/visited.hpp"
#include "search/ways.hpp"

namespace l2route {

// One query's walk. A step has two halves, so that a thread can advance another walk while memory
// fetches what this one prefetched. `budget` bounds the scores computed; the frontier's capacity is
// the beam width. The gate says what a filter does to the walk, `Stop` whether a learned rule ends
// it.
template <class Frontier, class Tracer, class Gate = Everything, class Stop = ByLimits>
class Walk {
 public:
  Walk(const GraphView& graph, Scorer& scorer, Frontier& frontier, Tracer& tracer,
       std::size_t budget, Scratch& scratch, const Slack& slack = {}, const Gate& gate = {},
       const Stop& stop = {})
      : graph_(graph),
        scorer_(scorer),
        frontier_(frontier),
        tracer_(tracer),
        budget_(budget),
        slack_(slack),
        gate_(gate),
        stop_(stop),
        near_(scorer.rows().near),
        near_keys_(scorer.rows().near_keys),
        visited_(scratch.visited.reset(graph.bottom.n)) {
    const std::size_t most =
        Gate::kLooks ? std::max(2 * graph.max_width, Filter::kMaxSample) : graph.max_width;
    scratch.fresh.resize(most);
    scratch.places.resize(most);
    scratch.scores.resize(most);
    scratch.keys.resize(most + kKeyRoom);
    if constexpr (Gate::kSieves) scratch.passing.resize(most);
    if constexpr (Gate::kLooks) {
      scratch.failing.resize(most);
      scratch.listed.resize(most);
    }
    passing_ = scratch.passing.data();
    failing_ = scratch.failing.data();
    listed_ = scratch.listed.data();
    fresh_ = scratch.fresh.data();
    places_ = scratch.places.data();
    scores_ = scratch.scores.data();
    keys_ = scratch.keys.data();
  }

  // Makes the walk treat a vertex as not in the graph.
  void hide(VertexId vertex) { visited_.insert(vertex); }

  void run() {
    start();
    finish();
  }

  // Walks on from where it is to its end.
  void finish() {
    while (gather()) absorb();
  }

  // Scores the entry points and descends through the upper layers.
  void start() {
    if constexpr (Gate::kLooks) {
      enter(gate_.filter->sample, gate_.filter->n_sample);
      enter(graph_.entries, graph_.n_entries);
      return;
    }
    Key nearest = visit(graph_.entries, graph_.n_entries);
    for (const Layer& layer : graph_.upper) nearest = descend(layer, nearest);
  }

  // Scores other entry points, on the bottom layer. If the walk then ends before it has found as
  // many vertices as it may keep, it goes on from those of the graph, which reach every vertex.
  void start_at(const VertexId* entries, std::size_t n_entries) {
    may_be_stuck_ = true;
    visit(entries, n_entries);
  }

  // Expands the best vertex: collects its unvisited neighbours, as many as the budget allows, for
  // `absorb` to score, and prefetches their rows. False if the walk is over.
  bool gather() {
    if (scorer_.n_computed() >= budget_) return false;
    if constexpr (Gate::kLooks || Gate::kSieves) {
      if (work() >= patience_) return false;
    }
    if constexpr (Gate::kSieves && Frontier::kIsRanked) {
      if (n_hops_ == kHopsToTell && is_far()) {
        patience_ = 0;
        return false;
      }
    }
    auto vertex = frontier_.pop(limit_);
    if constexpr (Stop::kLearns) {
      while (!vertex && goes_on()) vertex = frontier_.pop(limit_);
    }
    if (!vertex && is_stuck()) {
      start();
      vertex = frontier_.pop(limit_);
    }
    if (!vertex) return false;
    ++n_hops_;
    tracer_.expand(*vertex);
    const auto at = static_cast<std::size_t>(*vertex);
    const std::size_t width = graph_.bottom.width;
    if constexpr (Gate::kLooks) {
      look(*vertex);
    } else if (near_ == nullptr) {
      take(graph_.bottom.row(at), width);
    } else {
      take(graph_.bottom.row(at), width, *near_, [first = at * width](std::size_t i, VertexId) {
        return static_cast<VertexId>(first + i);
      });
    }
    return true;
  }

  // Scores the collected vertices and returns the best key among them.
  Key absorb() {
    scorer_.score(*rows_, places_, n_fresh_, scores_);
    const Key best = push();
    if constexpr (Frontier::kIsRanked) {
      if (slack_.k > 0 && frontier_.size() >= slack_.k) {
        limit_ = slack_.limit(frontier_.at(slack_.k - 1));
        if constexpr (Stop::kLearns) {
          stop_.observe(frontier_, slack_, scorer_.n_computed());
        } else {
          frontier_.forget_beyond(limit_, slack_.kept);
        }
      }
    }
    if (const auto next = frontier_.peek()) graph_.bottom.prefetch(*next);
    return best;
  }

  std::size_t n_hops() const { return n_hops_; }

  bool has_visited(VertexId vertex) const { return visited_.contains(vertex); }

  // Ends the walk when its work reaches this, in scores.
  void set_patience(std::size_t patience) { patience_ = patience; }
  bool has_given_up() const { return work() >= patience_; }

  // Ends the walk after a few hops if few of the nearest vertices found by then pass, compared with
  // the share of all that pass.
  void give_up_if_far(double share) {
    most_if_far_ = static_cast<std::int32_t>(share * kFewShare * static_cast<double>(kNearest));
  }

  // Scores computed and lists looked through, in scores.
  std::size_t work() const { return scorer_.n_computed() + kScoresPerList * n_looked_; }
  std::size_t n_looked() const { return n_looked_; }

 private:
  static constexpr std::size_t kHopsToTell = 32;
  static constexpr std::size_t kNearest = 32;  // of which those that pass are counted
  static constexpr double kFewShare = 0.125;

  // Whether a walk that has met its slack goes on with the next.
  bool goes_on() {
    if (frontier_.size() < slack_.k || graph_.bottom.width == 0) return false;
    const std::size_t n = scorer_.n_computed();
    if (!stop_.goes_on(frontier_, slack_, n, n_hops_, graph_.bottom.width)) return false;
    limit_ = slack_.limit(frontier_.at(slack_.k - 1));
    return true;
  }

  // Whether a walk that started at other entry points found too few vertices; true at most once.
  bool is_stuck() {
    if constexpr (requires { frontier_.is_full(); }) {
      const bool is_short = slack_.k > 0 ? frontier_.size() < slack_.kept : !frontier_.is_full();
      return std::exchange(may_be_stuck_, false) && is_short;
    }
    return false;
  }

  // Whether few of the nearest vertices found pass.
  bool is_far() const {
    if (most_if_far_ < 0) return false;
    std::int32_t n_passing = 0;
    for (std::size_t rank = 0; rank < std::min(kNearest, frontier_.n_waiting()); ++rank) {
      n_passing += gate_.filter->passes(vertex_of(frontier_.waiting(rank)));
    }
    return n_passing <= most_if_far_;
  }

  // Passes what was scored to the frontier; returns the best key.
  Key push() {
    if constexpr (std::is_same_v<Tracer, NoTrace> && !Gate::kSieves && !Stop::kLearns) {
      return push_near();
    }
    Key best = std::numeric_limits<Key>::max();
    std::size_t n = 0, n_passing = 0;
    const std::size_t n_known = frontier_.size();
    [[maybe_unused]] Key* aside = nullptr;
    [[maybe_unused]] Key held = kNoLimit;
    if constexpr (Stop::kLearns) {
      aside = stop_.room_aside(n_fresh_);
      held = stop_.held();
    }
    for (std::size_t i = 0; i < n_fresh_; ++i) {
      const Key key = tracer_.visit(fresh_[i], scores_[i], n_hops_);
      best = std::min(best, key);
      keys_[n] = key;
      if constexpr (Gate::kSieves) {
        n += key <= limit_;
        passing_[n_passing] = key;
        n_passing +=
            (key <= limit_ || n_known + n_passing < slack_.kept) && gate_.filter->passes(fresh_[i]);
      } else if constexpr (Stop::kLearns) {
        const bool is_held = key <= held || n_known + n < slack_.kept;
        aside[i - n] = key;
        n += is_held;  // no branch: whether a vertex is near cannot be predicted
      } else {
        n += key <= limit_ || n_known + n < slack_.kept;
      }
    }
    if constexpr (Stop::kLearns) stop_.put_aside(n_fresh_ - n);
    if constexpr (Gate::kSieves) {
      frontier_.push(keys_, n, passing_, n_passing);
    } else {
      frontier_.push(keys_, n);
    }
    return best;
  }

  // The same where nobody looks at what is beyond the limit: most vertices are only compared.
  Key push_near() {
    const Key best = graph_.upper.empty() ? kNoLimit : best_scored();
    const Key farthest = std::min(limit_, frontier_.worst());
    const std::size_t n_any = slack_.kept - std::min(slack_.kept, frontier_.size());
    const float reach =
        farthest == kNoLimit ? std::numeric_limits<float>::infinity() : score_of(farthest);
    const std::size_t n = near_keys_(scores_, fresh_, n_fresh_, reach, n_any, keys_);
    frontier_.merge(keys_, n);
    return best;
  }

  // The best key of what was scored.
  Key best_scored() const {
    Key best = kNoLimit;
    for (std::size_t i = 0; i < n_fresh_; ++i) {
      best = std::min(best, make_key(scores_[i], fresh_[i]));
    }
    return best;
  }

  // Scores those of a list that pass.
  void enter(const VertexId* vertices, std::size_t n_vertices) {
    n_fresh_ = 0;
    rows_ = &scorer_.rows();
    add_passing(vertices, n_vertices, budget_ - scorer_.n_computed());
    absorb();
  }

  // Collects the neighbours that pass. If they are few, also those of the neighbours that do not
  // pass, until there are as many as a list is long.
  void look(VertexId vertex) {
    const std::size_t width = graph_.bottom.width;
    const std::size_t allowed = budget_ - scorer_.n_computed();
    const Stamps visited = visited_;
    const VertexId* const list = graph_.bottom.row(static_cast<std::size_t>(vertex));
    n_fresh_ = 0;
    rows_ = &scorer_.rows();
    std::size_t n_seen = add_passing(list, width, allowed);
    if (n_seen >= width / 2) return;
    std::size_t n_failing = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const VertexId id = load_id(list + i);
      if (id < 0) break;
      if (visited.contains(id)) continue;
      graph_.bottom.prefetch(id);
      failing_[n_failing++] = id;
    }
    for (std::size_t i = 0; i < n_failing && n_fresh_ < std::min(allowed, width); ++i) {
      visited.insert(failing_[i]);
      ++n_looked_;
      add_passing(graph_.bottom.row(static_cast<std::size_t>(failing_[i])), width, allowed);
    }
  }

  // Collects the unvisited vertices of a list that pass; returns how many of the list pass.
  std::size_t add_passing(const VertexId* list, std::size_t width, std::size_t allowed) {
    const Filter& filter = *gate_.filter;
    const Stamps visited = visited_;
    const Rows& rows = scorer_.rows();
    VertexId* const passing = listed_;
    std::size_t n_seen = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const VertexId id = load_id(list + i);
      if (id < 0) break;
      passing[n_seen] = id;
      n_seen += filter.passes(id);  // no branch: whether a vertex passes cannot be predicted
    }
    std::size_t n = n_fresh_;
    for (std::size_t i = 0; i < n_seen && n < allowed; ++i) {
      const VertexId id = passing[i];
      if (!visited.insert(id)) continue;
      rows.prefetch(id);
      tracer_.prefetch(id);
      fresh_[n] = id;
      places_[n++] = id;
    }
    n_fresh_ = n;
    return n_seen;
  }

  // Greedy walk in an upper layer. The nearest vertex so far is the nearest of all visited, so
  // neighbours that were visited already cannot improve on it and are not scored again.
  Key descend(const Layer& layer, Key nearest) {
    while (scorer_.n_computed() < budget_) {
      ++n_hops_;
      tracer_.descend(vertex_of(nearest));
      const Key found = visit(layer.row_of(vertex_of(nearest)), layer.adjacency.width);
      if (found >= nearest) break;
      nearest = found;
    }
    return nearest;
  }

  Key visit(const VertexId* neighbors, std::size_t width) {
    take(neighbors, width);
    return absorb();
  }

  void take(const VertexId* neighbors, std::size_t width) {
    take(neighbors, width, scorer_.rows(), [](std::size_t, VertexId id) { return id; });
  }

  // Collects the unvisited vertices of a list, whose routing vectors are rows[place_of(i, id)].
  template <class PlaceOf>
  void take(const VertexId* neighbors, std::size_t width, const Rows& rows, PlaceOf place_of) {
    const std::size_t allowed = budget_ - scorer_.n_computed();
    const Stamps visited = visited_;
    VertexId *const fresh = fresh_, *const places = places_;
    std::size_t n = 0;
    for (std::size_t i = 0; i < width && n < allowed; ++i) {
      const VertexId id = load_id(neighbors + i);
      if (id < 0) break;
      fresh[n] = id;
      places[n] = place_of(i, id);
      n += visited.insert(id);  // no branch: whether a vertex is new cannot be predicted
    }
    for (std::size_t i = 0; i < n; ++i) {
      rows.prefetch(places[i]);
      tracer_.prefetch(fresh[i]);
    }
    n_fresh_ = n;
    rows_ = &rows;
    if (const auto next = frontier_.peek()) graph_.bottom.prefetch(*next);
  }

  const GraphView& graph_;
  Scorer& scorer_;
  Frontier& frontier_;
  Tracer& tracer_;
  const std::size_t budget_;
  Slack slack_;
  [[no_unique_address]] const Gate gate_;
  [[no_unique_address]] Stop stop_;
  const Rows* const near_;
  const NearKeys near_keys_;
  Key limit_ = kNoLimit;
  const Stamps visited_;
  VertexId* fresh_;
  VertexId* places_;  // rows of the fresh vertices
  const Rows* rows_ = nullptr;
  float* scores_;
  Key* keys_;
  std::size_t n_fresh_ = 0;
  std::size_t n_hops_ = 0;
  bool may_be_stuck_ = false;
  Key* passing_;       // keys of the fresh vertices that pass a filter
  VertexId* failing_;  // neighbours that do not pass
  VertexId* listed_;   // those of a list that pass
  std::size_t n_looked_ = 0;
  std::size_t patience_ = std::numeric_limits<std::size_t>::max();
  std::int32_t most_if_far_ = -1;  // of the nearest; −1 not to look
};

}  // namespace l2route
