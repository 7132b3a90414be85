// Selects few and diverse neighbours among many candidates.
//
// Candidates are processed from near to far. A candidate c of vertex v is dropped if a kept p has
// alpha·d²(p, c) < d²(v, c). With alpha = 1 this is the rule of the relative neighbourhood graph; a
// larger alpha keeps more candidates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/rows.hpp"
#include "search/frontier.hpp"
#include "search/graph.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// Copies a row of floats or half floats as floats.
inline void copy_floats(const Rows& rows, VertexId id, float* out) {
  const std::size_t first = static_cast<std::size_t>(id) * rows.width;
  if (rows.element == Element::half) {
    const auto* row = static_cast<const Half*>(rows.data) + first;
    std::transform(row, row + rows.width, out, [](Half half) { return portable::to_float(half); });
  } else {
    std::copy_n(rows.floats() + first, rows.width, out);
  }
}

inline float squared_sum(const float* values, std::size_t n) {
  float sums[kLanes] = {};
  for (std::size_t j = 0; j < n; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += values[j + lane] * values[j + lane];
    }
  }
  return std::accumulate(sums, sums + kLanes, 0.0f);
}

// Squared length of the longest of these rows.
inline float longest_square(const Rows& rows, const VertexId* ids, std::size_t n) {
  std::vector<float> row(rows.width);
  float longest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    copy_floats(rows, ids[i], row.data());
    longest = std::max(longest, squared_sum(row.data(), rows.width));
  }
  return longest;
}

// A vertex and its candidates: their vectors side by side, and distances from the vertex.
class Closeup {
 public:
  struct Candidate {
    Key key;         // squared distance and id
    VertexId place;  // of its vector; the vertex itself has place 0
    VertexId id() const { return vertex_of(key); }
    float distance() const { return score_of(key); }
    bool operator<(const Candidate& other) const { return key < other.key; }
  };

  std::vector<Candidate> candidates;  // from near to far, ties by id

  // Takes the distinct candidates into view; -1 and the vertex itself are left out. For rows scored
  // by inner product the vectors get one more dimension, which makes all as long as the longest:
  // then the nearest by distance are those with the largest inner products.
  void look(const Rows& rows, ScoreRows score, float longest, VertexId vertex,
            std::vector<VertexId>& ids) {
    std::erase_if(ids, [vertex](VertexId id) { return id < 0 || id == vertex; });
    score_ = score;
    width_ = rows.width + (rows.kind == ScoreKind::inner_product ? kLanes : 0);
    const std::size_t n = ids.size();
    if (vectors_.size() < (n + 1) * width_) vectors_.resize((n + 1) * width_);
    for (const VertexId id : ids) rows.prefetch(id);
    copy(rows, longest, vertex, 0);
    for (std::size_t i = 0; i < n; ++i) copy(rows, longest, ids[i], i + 1);
    places_.resize(n);
    scores_.resize(n);
    std::iota(places_.begin(), places_.end(), 1);
    distances(0, places_.data(), n, scores_.data());
    candidates.resize(n);
    for (std::size_t i = 0; i < n; ++i) candidates[i] = {make_key(scores_[i], ids[i]), places_[i]};
    std::sort(candidates.begin(), candidates.end());
    const auto is_repeated = [](const Candidate& a, const Candidate& b) { return a.key == b.key; };
    candidates.erase(std::unique(candidates.begin(), candidates.end(), is_repeated),
                     candidates.end());
  }

  // Chooses neighbours by the rule above: first all candidates that are kept, then others until
  // there are `degree`. Returns how many.
  template <class IsKept>
  std::size_t choose(float alpha, std::size_t degree, const IsKept& is_kept, VertexId* list) {
    left_.clear();
    std::size_t n = 0;
    for (const Candidate& one : candidates) {
      if (!is_kept(one.id())) left_.push_back(one);
    }
    for (const Candidate& one : candidates) {
      if (!is_kept(one.id())) continue;
      list[n++] = one.id();
      if (n < degree) drop_covered(one, 0, alpha);
    }
    while (n < degree && !left_.empty()) {
      const Candidate one = left_.front();
      list[n++] = one.id();
      if (n < degree) drop_covered(one, 1, alpha);
    }
    return n;
  }

 private:
  void copy(const Rows& rows, float longest, VertexId id, std::size_t place) {
    float* const vector = vectors_.data() + place * width_;
    copy_floats(rows, id, vector);
    if (rows.kind != ScoreKind::inner_product) return;
    std::fill(vector + rows.width, vector + width_, 0.0f);
    const float missing = longest - squared_sum(vector, rows.width);
    vector[rows.width] = std::sqrt(std::max(missing, 0.0f));
  }

  void distances(VertexId from, const VertexId* places, std::size_t n, float* scores) const {
    const float* vector = vectors_.data() + static_cast<std::size_t>(from) * width_;
    score_(vector, vectors_.data(), width_, places, n, scores);
  }

  // Removes from those left the first ones, and those that the kept one equals or is closer to.
  void drop_covered(const Candidate& kept, std::size_t n_first, float alpha) {
    const std::size_t n = left_.size() - n_first;
    for (std::size_t i = 0; i < n; ++i) places_[i] = left_[n_first + i].place;
    distances(kept.place, places_.data(), n, scores_.data());
    std::size_t n_left = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Candidate one = left_[n_first + i];
      const bool is_covered = scores_[i] == 0 || alpha * scores_[i] < one.distance();
      left_[n_left] = one;
      n_left += !is_covered;
    }
    left_.resize(n_left);
  }

  std::vector<float> vectors_;  // [1 + n, width], padded
  std::size_t width_ = 0;
  ScoreRows score_ = nullptr;
  std::vector<VertexId> places_;
  std::vector<float> scores_;
  std::vector<Candidate> left_;  // neither chosen nor covered
};

inline constexpr auto kKeepNone = [](VertexId) { return false; };
inline constexpr auto kKeepAll = [](VertexId) { return true; };

class Pruner {
 public:
  // `rows` are floats or half floats; `longest` is the squared length of the longest vector, for
  // rows scored by inner product.
  Pruner(const Rows& rows, float alpha, float longest)
      : rows_(rows),
        alpha_(alpha),
        longest_(longest),
        score_(float_kernel<ScoreKind::l2, float>(choose_level("auto"))) {}

  // This thread's view of the candidates.
  Closeup& look(VertexId vertex, std::vector<VertexId>& candidates) const {
    Closeup& closeup = own_closeup();
    closeup.look(rows_, score_, longest_, vertex, candidates);
    return closeup;
  }

  // Writes neighbours, nearest first and padded with -1, into a list of `degree` ids. If
  // `is_pruned` is false, nothing is dropped as long as all candidates fit.
  void prune(VertexId vertex, std::vector<VertexId>& candidates, std::size_t degree, bool is_pruned,
             VertexId* list) const {
    Closeup& closeup = look(vertex, candidates);
    const bool fits = !is_pruned && closeup.candidates.size() <= degree;
    const std::size_t n = fits ? closeup.choose(alpha_, degree, kKeepAll, list)
                               : closeup.choose(alpha_, degree, kKeepNone, list);
    std::fill(list + n, list + degree, VertexId{-1});
  }

  float alpha() const { return alpha_; }

 private:
  [[gnu::noinline]] static Closeup& own_closeup() {
    thread_local Closeup closeup;
    return closeup;
  }

  const Rows& rows_;
  const float alpha_;
  const float longest_;
  const ScoreRows score_;
};

// Reversed edges: for each vertex, the vertices that list it.
struct Reversed {
  std::vector<std::size_t> offsets;  // vertex v's sources are [offsets[v], offsets[v + 1])
  std::vector<VertexId> sources;     // ascending within a part

  Reversed(const Adjacency& lists, Pulse& pulse) : offsets(lists.n + 1, 0) {
    const auto for_each_edge = [&lists, &pulse](const auto& visit) {
      for (std::size_t v = 0; v < lists.n; ++v) {
        if (v % kVerticesPerBeat == 0) pulse.beat();
        const VertexId* row = lists.row(v);
        for (std::size_t i = 0; i < lists.width && row[i] >= 0; ++i) {
          visit(static_cast<VertexId>(v), static_cast<std::size_t>(row[i]));
        }
      }
    };
    for_each_edge([this](VertexId, std::size_t to) { ++offsets[to + 1]; });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    sources.resize(offsets.back());
    std::vector<std::size_t> next(offsets.begin(), offsets.end() - 1);
    for_each_edge([&](VertexId from, std::size_t to) { sources[next[to]++] = from; });
  }
};

// Adds reversed edges to lists, and prunes those that exceed the degree. The result is the same for
// any number of threads.
inline void make_mutual(const Pruner& pruner, const Adjacency& found, std::size_t degree,
                        std::size_t n_threads, VertexId* lists, Pulse& pulse) {
  const Reversed reversed(found, pulse);
  parallel_for(found.n, n_threads, pulse, [&](std::size_t v) {
    std::vector<VertexId> ids(found.row(v), found.row(v) + found.width);
    ids.insert(ids.end(),
               reversed.sources.begin() + static_cast<std::ptrdiff_t>(reversed.offsets[v]),
               reversed.sources.begin() + static_cast<std::ptrdiff_t>(reversed.offsets[v + 1]));
    pruner.prune(static_cast<VertexId>(v), ids, degree, false, lists + v * degree);
  });
}

// Prunes every vertex's candidates, and makes the edges mutual where lists have room.
inline void prune_lists(const Pruner& pruner, const Adjacency& candidates, std::size_t degree,
                        std::size_t n_threads, VertexId* lists, Pulse& pulse) {
  std::vector<VertexId> first(candidates.n * degree);
  parallel_for(candidates.n, n_threads, pulse, [&](std::size_t v) {
    std::vector<VertexId> ids(candidates.row(v), candidates.row(v) + candidates.width);
    pruner.prune(static_cast<VertexId>(v), ids, degree, true, &first[v * degree]);
  });
  make_mutual(pruner, {first.data(), candidates.n, degree}, degree, n_threads, lists, pulse);
}

}  // namespace l2route
