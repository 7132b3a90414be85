// The search: Algorithm 1 of "Learning to Route in Similarity Graphs", under an exact budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/rows.hpp"
#include "search/frontier.hpp"
#include "search/graph.hpp"
#include "search/visited.hpp"

namespace l2route {

// A tracer observes a search. `visit` is called for every vertex in the order visited, with its
// score and hop, and returns the key that the frontier ranks it by; `expand` is called for every
// vertex expanded on the bottom layer; `prefetch` for vertices that will be visited soon.
struct NoTrace {
  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t) { return make_key(score, vertex); }
  void expand(VertexId) {}
};

struct RecordTrace {
  std::vector<VertexId> vertices;
  std::vector<std::int32_t> hops;

  void prefetch(VertexId) const {}
  Key visit(VertexId vertex, float score, std::size_t hop) {
    vertices.push_back(vertex);
    hops.push_back(static_cast<std::int32_t>(hop));
    return make_key(score, vertex);
  }
  void expand(VertexId) {}
};

// Buffers of one thread, reused from query to query so that a search allocates nothing.
struct Scratch {
  VisitedSet visited;
  SortedFrontier sorted;
  HeapFrontier heap;
  std::vector<VertexId> fresh;
  std::vector<VertexId> places;
  std::vector<float> scores;
  std::vector<Key> keys;
  std::vector<Key> best;

  template <class Frontier>
  Frontier& frontier() {
    if constexpr (std::is_same_v<Frontier, SortedFrontier>) {
      return sorted;
    } else {
      return heap;
    }
  }
};

// Ends a walk when the squared distance of the best vertex not expanded exceeds `factor` times that
// of the k-th best visited. Score + offset is proportional to the squared distance.
struct Slack {
  std::size_t k = 0;     // 0 for no limit
  std::size_t kept = 0;  // number of vertices that are kept at any distance
  float factor = 1;      // of squared distances
  float offset = 0;

  Key limit(Key kth) const {
    const float score = score_of(kth);
    const float reach = score + (factor - 1) * std::max(score + offset, 0.0f);
    return make_key(reach, std::numeric_limits<VertexId>::max());
  }
};

// One query's walk. A step has two halves, so that a thread can advance another walk while memory
// fetches what this one prefetched. `budget` bounds the scores computed; the frontier's capacity is
// the beam width.
template <class Frontier, class Tracer>
class Walk {
 public:
  Walk(const GraphView& graph, Scorer& scorer, Frontier& frontier, Tracer& tracer,
       std::size_t budget, Scratch& scratch, const Slack& slack = {})
      : graph_(graph),
        scorer_(scorer),
        frontier_(frontier),
        tracer_(tracer),
        budget_(budget),
        slack_(slack),
        near_(scorer.rows().near),
        visited_(scratch.visited.reset(graph.bottom.n)) {
    scratch.fresh.resize(graph.max_width);
    scratch.places.resize(graph.max_width);
    scratch.scores.resize(graph.max_width);
    scratch.keys.resize(graph.max_width);
    fresh_ = scratch.fresh.data();
    places_ = scratch.places.data();
    scores_ = scratch.scores.data();
    keys_ = scratch.keys.data();
  }

  // Makes the walk treat a vertex as not in the graph.
  void hide(VertexId vertex) { visited_.insert(vertex); }

  void run() {
    start();
    while (gather()) absorb();
  }

  // Scores the entry points and descends through the upper layers.
  void start() {
    Key nearest = visit(graph_.entries, graph_.n_entries);
    for (const Layer& layer : graph_.upper) nearest = descend(layer, nearest);
  }

  // Expands the best vertex: collects its unvisited neighbours, as many as the budget allows, for
  // `absorb` to score, and prefetches their rows. False if the walk is over.
  bool gather() {
    if (scorer_.n_computed() >= budget_) return false;
    const auto vertex = frontier_.pop(limit_);
    if (!vertex) return false;
    ++n_hops_;
    tracer_.expand(*vertex);
    const auto at = static_cast<std::size_t>(*vertex);
    const std::size_t width = graph_.bottom.width;
    if (near_ == nullptr) {
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
    Key best = std::numeric_limits<Key>::max();
    std::size_t n = 0;
    const std::size_t n_known = frontier_.size();
    for (std::size_t i = 0; i < n_fresh_; ++i) {
      const Key key = tracer_.visit(fresh_[i], scores_[i], n_hops_);
      best = std::min(best, key);
      keys_[n] = key;
      n += key <= limit_ || n_known + n < slack_.kept;
    }
    frontier_.push(keys_, n);
    if constexpr (Frontier::kIsRanked) {
      if (slack_.k > 0 && frontier_.size() >= slack_.k) {
        limit_ = slack_.limit(frontier_.at(slack_.k - 1));
        frontier_.forget_beyond(limit_, slack_.kept);
      }
    }
    if (const auto next = frontier_.peek()) graph_.bottom.prefetch(*next);
    return best;
  }

  std::size_t n_hops() const { return n_hops_; }

 private:
  // Greedy walk in an upper layer. The nearest vertex so far is the nearest of all visited, so
  // neighbours that were visited already cannot improve on it and are not scored again.
  Key descend(const Layer& layer, Key nearest) {
    while (scorer_.n_computed() < budget_) {
      ++n_hops_;
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
      if (!visited.insert(id)) continue;
      const VertexId place = place_of(i, id);
      rows.prefetch(place);
      tracer_.prefetch(id);
      fresh[n] = id;
      places[n++] = place;
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
  const Slack slack_;
  const Rows* const near_;
  Key limit_ = kNoLimit;
  const Stamps visited_;
  VertexId* fresh_;
  VertexId* places_;  // rows of the fresh vertices
  const Rows* rows_ = nullptr;
  float* scores_;
  Key* keys_;
  std::size_t n_fresh_ = 0;
  std::size_t n_hops_ = 0;
};

}  // namespace l2route
