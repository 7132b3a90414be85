// A search that goes on where it stopped: page after page of vertices, from near to far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "search/filter.hpp"
#include "search/searcher.hpp"
#include "search/ways.hpp"

namespace l2route {

// Vertices wait to be expanded while they are better than the `ef` best that pass and were not
// taken. Everything that passes is kept until it is taken.
class StreamFrontier {
 public:
  static constexpr bool kIsRanked = false;

  void reset(std::size_t ef) {
    ef_ = ef;
    waiting_.clear();
    beam_.clear();
    rest_.clear();
  }

  void push(const Key* fresh, std::size_t n, const Key* passing, std::size_t n_passing) {
    std::for_each(passing, passing + n_passing, [this](Key key) { keep(key); });
    std::for_each(fresh, fresh + n, [this](Key key) { add(waiting_, key, std::greater<>()); });
  }

  std::optional<VertexId> pop(Key = kNoLimit) {
    const std::optional<VertexId> vertex = peek();
    if (vertex) remove(waiting_, std::greater<>());
    return vertex;
  }

  std::optional<VertexId> peek() const {
    const bool is_full = beam_.size() == ef_;
    if (waiting_.empty() || (is_full && waiting_.front() > beam_.front())) return std::nullopt;
    return vertex_of(waiting_.front());
  }

  std::size_t size() const { return beam_.size(); }

  // Takes the `count` best, at most ef, ascending, and adds them to `out`.
  void take(std::size_t count, std::vector<Key>& out) {
    std::sort_heap(beam_.begin(), beam_.end());
    const auto end = beam_.begin() + static_cast<std::ptrdiff_t>(std::min(count, beam_.size()));
    out.insert(out.end(), beam_.begin(), end);
    beam_.erase(beam_.begin(), end);
    while (beam_.size() < ef_ && !rest_.empty()) {
      beam_.push_back(rest_.front());
      remove(rest_, std::greater<>());
    }
    std::make_heap(beam_.begin(), beam_.end());
  }

  void stop_waiting() { waiting_.clear(); }

 private:
  template <class Order>
  static void add(std::vector<Key>& heap, Key key, const Order& order) {
    heap.push_back(key);
    std::push_heap(heap.begin(), heap.end(), order);
  }
  template <class Order>
  static void remove(std::vector<Key>& heap, const Order& order) {
    std::pop_heap(heap.begin(), heap.end(), order);
    heap.pop_back();
  }

  void keep(Key key) {
    if (beam_.size() == ef_) {
      if (key > beam_.front()) {
        add(rest_, key, std::greater<>());
        return;
      }
      add(rest_, beam_.front(), std::greater<>());
      remove(beam_, std::less<>());
    }
    add(beam_, key, std::less<>());
  }

  std::size_t ef_ = 1;
  std::vector<Key> waiting_;  // min-heap of the vertices not expanded
  std::vector<Key> beam_;     // max-heap of the best that pass and were not taken
  std::vector<Key> rest_;     // min-heap of the others that pass and were not taken
};

// Buffers of a stream, reused from query to query.
struct StreamScratch {
  Searcher::QueryScratch query;
  StreamFrontier frontier;
  std::vector<Key> ranked;  // by true distance, ascending; not returned yet
};

// Its walk goes through vertices that do not pass. After as much work as a scan would be, whatever
// was not visited is scanned.
class Stream {
 public:
  // `rerank`: vertices that compete for a page by their true distance, at least the page.
  Stream(const Searcher& searcher, const float* query, const Filter& filter, std::size_t ef,
         std::size_t rerank, StreamScratch& scratch)
      : searcher_(searcher),
        filter_(filter),
        scratch_(scratch),
        ef_(std::max<std::size_t>(ef, 1)),
        rerank_(searcher.original ? std::min(rerank, ef_) : 0),
        scorer_(searcher.routing, searcher.prepare(query, scratch.query), &scratch.query.codes),
        walk_(searcher.graph, scorer_, scratch.frontier, tracer_, searcher.graph.bottom.n,
              scratch.query.walk, {}, Sieve{&filter_}) {
    scratch_.frontier.reset(ef_);
    scratch_.ranked.clear();
    const double scan = static_cast<double>(filter.count) * scan_ns(searcher.routing.bytes);
    walk_.set_patience(static_cast<std::size_t>(scan / walk_ns(searcher.routing.bytes)));
    if (!walk_.has_given_up()) walk_.start();
  }
  Stream(const Stream&) = delete;  // the walk refers to its members
  Stream& operator=(const Stream&) = delete;

  // The next vertices, at most `count` and ef, by true distance; fewer only at the end.
  void next(std::size_t count, Pulse& pulse, std::vector<Key>& page) {
    count = std::min(count, ef_);
    std::vector<Key>& ranked = scratch_.ranked;
    const std::size_t wanted = std::max(count, rerank_);
    while (ranked.size() < wanted) {
      advance(pulse);
      std::vector<Key>& best = scratch_.query.walk.best;
      best.clear();
      scratch_.frontier.take(wanted - ranked.size(), best);
      if (best.empty()) break;
      if (searcher_.original) searcher_.rerank(scratch_.query, best);
      ranked.insert(ranked.end(), best.begin(), best.end());
    }
    std::sort(ranked.begin(), ranked.end());
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(std::min(count, ranked.size()));
    page.assign(ranked.begin(), end);
    ranked.erase(ranked.begin(), end);
  }

 private:
  void advance(Pulse& pulse) {
    for (std::size_t step = 1; walk_.gather(); ++step) {
      walk_.absorb();
      if (step % Searcher::kStepsPerBeat == 0) pulse.beat();
    }
    if (walk_.has_given_up() && !has_scanned_) scan_rest(pulse);
  }

  void scan_rest(Pulse& pulse) {
    has_scanned_ = true;
    scratch_.frontier.stop_waiting();
    std::vector<VertexId> unvisited;
    std::vector<float> scores;
    std::vector<Key> keys;
    std::size_t n_blocks = 0;
    filter_.each_block(
        searcher_.graph.bottom.n, scratch_.query.ids, [&](const VertexId* ids, std::size_t n) {
          unvisited.clear();
          std::copy_if(ids, ids + n, std::back_inserter(unvisited),
                       [&](VertexId id) { return !walk_.has_visited(id) && filter_.is_alive(id); });
          scores.resize(unvisited.size());
          keys.resize(unvisited.size());
          for (const VertexId id : unvisited) searcher_.routing.prefetch(id);
          scorer_.score(unvisited.data(), unvisited.size(), scores.data());
          for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = make_key(scores[i], unvisited[i]);
          scratch_.frontier.push(nullptr, 0, keys.data(), keys.size());
          if (++n_blocks % Searcher::kStepsPerBeat == 0) pulse.beat();
        });
  }

  const Searcher& searcher_;
  const Filter filter_;
  StreamScratch& scratch_;
  const std::size_t ef_;
  const std::size_t rerank_;
  NoTrace tracer_;
  Scorer scorer_;
  Walk<StreamFrontier, NoTrace, Sieve> walk_;
  bool has_scanned_ = false;
};

// Vertices within a radius of a query, by true distance: pages are taken until one of half the beam
// has none within it.
inline void find_within(const Searcher& searcher, const float* query, const Filter& filter,
                        float radius, std::size_t ef, StreamScratch& scratch, Pulse& pulse,
                        std::vector<Key>& found) {
  Stream stream(searcher, query, filter, ef, 0, scratch);
  std::vector<Key> page;
  for (std::size_t n_before = 0;; n_before = found.size()) {
    stream.next((ef + 1) / 2, pulse, page);
    for (const Key key : page) {
      if (searcher.distance_of(score_of(key)) <= radius) found.push_back(key);
    }
    if (page.empty() || found.size() == n_before) break;
  }
  std::sort(found.begin(), found.end());
}

}  // namespace l2route
