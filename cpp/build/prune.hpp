// Selects few and diverse neighbours among many candidates.
//
// Candidates are processed from near to far. A candidate c of vertex v is dropped if a kept p has
// alpha·d²(p, c) < d²(v, c). With alpha = 1 this is the rule of the relative neighbourhood graph; a
// larger alpha keeps more candidates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/rows.hpp"
#include "search/frontier.hpp"
#include "search/graph.hpp"
#include "threads/parallel.hpp"

namespace l2route {

class Pruner {
 public:
  // `rows` are floats scored by l2.
  Pruner(const Rows& rows, float alpha, std::size_t degree)
      : rows_(rows), alpha_(alpha), degree_(degree) {}

  // Writes the vertex's neighbours, nearest first and padded with -1, into a list of `degree` ids.
  // Candidates may include the vertex itself, -1 and repetitions. If `is_pruned` is false, nothing
  // is dropped as long as all candidates fit.
  void prune(VertexId vertex, std::vector<VertexId>& candidates, bool is_pruned,
             VertexId* list) const {
    const std::vector<Key> sorted = from_near_to_far(vertex, candidates);
    const bool fits = !is_pruned && sorted.size() <= degree_;
    std::size_t n = 0;
    for (std::size_t i = 0; i < sorted.size() && n < degree_; ++i) {
      if (fits || !is_covered(sorted[i], list, n)) list[n++] = vertex_of(sorted[i]);
    }
    std::fill(list + n, list + degree_, VertexId{-1});
  }

 private:
  void score(VertexId vertex, const VertexId* ids, std::size_t n, float* scores) const {
    const float* row = rows_.floats() + static_cast<std::size_t>(vertex) * rows_.width;
    rows_.score(row, rows_.data, rows_.width, ids, n, scores);
  }

  // Distinct candidates sorted by distance, ties by id.
  std::vector<Key> from_near_to_far(VertexId vertex, std::vector<VertexId>& candidates) const {
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    std::erase_if(candidates, [vertex](VertexId id) { return id < 0 || id == vertex; });
    std::vector<float> scores(candidates.size());
    score(vertex, candidates.data(), candidates.size(), scores.data());
    std::vector<Key> keys(candidates.size());
    std::transform(scores.begin(), scores.end(), candidates.begin(), keys.begin(), make_key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  // Whether a kept neighbour equals the candidate or is closer to it by the rule above.
  bool is_covered(Key candidate, const VertexId* taken, std::size_t n) const {
    constexpr std::size_t kAtOnce = 4;
    float scores[kAtOnce];
    for (std::size_t i = 0; i < n; i += kAtOnce) {
      const std::size_t m = std::min(kAtOnce, n - i);
      score(vertex_of(candidate), taken + i, m, scores);
      for (std::size_t j = 0; j < m; ++j) {
        if (scores[j] == 0 || alpha_ * scores[j] < score_of(candidate)) return true;
      }
    }
    return false;
  }

  const Rows& rows_;
  const float alpha_;
  const std::size_t degree_;
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

// Prunes every vertex's candidates, adds reversed edges, and prunes again the lists that exceed the
// degree. The result is the same for any number of threads.
inline void prune_lists(const Rows& rows, const Adjacency& candidates, std::size_t degree,
                        float alpha, std::size_t n_threads, VertexId* lists, Pulse& pulse) {
  const std::size_t n = candidates.n;
  const Pruner pruner(rows, alpha, degree);
  std::vector<VertexId> first(n * degree);
  parallel_for(n, n_threads, pulse, [&](std::size_t v) {
    const VertexId* row = candidates.row(v);
    std::vector<VertexId> ids(row, row + candidates.width);
    pruner.prune(static_cast<VertexId>(v), ids, true, &first[v * degree]);
  });
  const Adjacency found{first.data(), n, degree};
  const Reversed reversed(found, pulse);
  parallel_for(n, n_threads, pulse, [&](std::size_t v) {
    std::vector<VertexId> ids(found.row(v), found.row(v) + degree);
    ids.insert(ids.end(),
               reversed.sources.begin() + static_cast<std::ptrdiff_t>(reversed.offsets[v]),
               reversed.sources.begin() + static_cast<std::ptrdiff_t>(reversed.offsets[v + 1]));
    pruner.prune(static_cast<VertexId>(v), ids, false, lists + v * degree);
  });
}

}  // namespace l2route
