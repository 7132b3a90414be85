// From walks to gradients: one rollout, and sums over visits that no thread can reorder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "learn/rollout.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// `hidden` is a vertex that the walk does not see, as if it were not in the graph; -1 for none.
// The gradient in the query's row, the sum of score gradient · vertex row over its visits, is taken
// at once if it is asked for, while the rows that the walk has read are still in the cache.
inline void run_rollout(const GraphView& graph, const Rows& rows, const float* query,
                        const RolloutOptions& options, VertexId hidden, RolloutTracer& tracer,
                        Lesson& lesson, float* query_gradient) {
  thread_local Scratch scratch;
  thread_local std::vector<std::int32_t> place;
  if (place.size() < graph.bottom.n) place.resize(graph.bottom.n);
  Scorer scorer(rows, query);
  scratch.heap.reset(graph.bottom.n);
  Walk<HeapFrontier, RolloutTracer> walk(graph, scorer, scratch.heap, tracer, options.budget,
                                         scratch);
  if (hidden >= 0) walk.hide(hidden);
  walk.run();
  tracer.teach(place, lesson);
  if (query_gradient == nullptr) return;
  std::fill(query_gradient, query_gradient + rows.width, 0.0f);
  rows.add(rows.floats(), rows.width, lesson.vertices.data(), lesson.gradients.data(),
           lesson.vertices.size(), query_gradient);
}

// Visits of a batch: query i's are those in [offsets[i], offsets[i + 1]).
struct Visits {
  const std::int64_t* offsets;
  const std::int32_t* vertices;
  const float* gradients;
  std::size_t n_queries;
};

// rows[v] = sum of score gradient · query over v's visits, bias[v] = sum of gradients; visits are
// sorted by vertex first, queries in order, so the sums are the same for any number of threads.
inline void sum_by_vertex(const Visits& visits, const float* queries, std::size_t width,
                          std::size_t n_vertices, std::size_t n_threads, float* rows, float* bias,
                          Pulse& pulse) {
  const auto n_visits = static_cast<std::size_t>(visits.offsets[visits.n_queries]);
  std::vector<std::size_t> begin(n_vertices + 1, 0);
  for (std::size_t i = 0; i < n_visits; ++i) {
    ++begin[static_cast<std::size_t>(visits.vertices[i]) + 1];
  }
  for (std::size_t v = 0; v < n_vertices; ++v) begin[v + 1] += begin[v];
  struct Item {
    std::int32_t query;
    float gradient;
  };
  std::vector<Item> items(n_visits);
  std::vector<std::size_t> cursor(begin.begin(), begin.end() - 1);
  for (std::size_t q = 0; q < visits.n_queries; ++q) {
    for (auto i = visits.offsets[q]; i < visits.offsets[q + 1]; ++i) {
      const auto vertex = static_cast<std::size_t>(visits.vertices[i]);
      items[cursor[vertex]++] = {static_cast<std::int32_t>(q), visits.gradients[i]};
    }
  }
  parallel_for(n_vertices, n_threads, pulse, [&](std::size_t v) {
    float* row = rows + v * width;
    for (std::size_t j = 0; j < width; ++j) row[j] = 0;
    float total = 0;
    for (std::size_t i = begin[v]; i < begin[v + 1]; ++i) {
      const float* query = queries + static_cast<std::size_t>(items[i].query) * width;
      const float gradient = items[i].gradient;
      for (std::size_t j = 0; j < width; ++j) row[j] += gradient * query[j];
      total += gradient;
    }
    bias[v] = total;
  });
}

}  // namespace l2route
