// From walks to gradients: one rollout, and sums over visits that no thread can reorder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel.hpp"
#include "rollout.hpp"

namespace l2route {

// sum += scale · row over some rows, four at a time: a sum is read and written once for all four.
[[gnu::always_inline]] inline void add_scaled_rows(const float* rows, std::size_t width,
                                                   const VertexId* ids, const float* scales,
                                                   std::size_t n, float* __restrict sum) {
  const auto row = [&](std::size_t i) { return rows + static_cast<std::size_t>(ids[i]) * width; };
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float *a = row(i), *b = row(i + 1), *c = row(i + 2), *d = row(i + 3);
    for (std::size_t j = 0; j < width; ++j) {
      sum[j] +=
          (scales[i] * a[j] + scales[i + 1] * b[j]) + (scales[i + 2] * c[j] + scales[i + 3] * d[j]);
    }
  }
  for (; i < n; ++i) {
    const float* a = row(i);
    for (std::size_t j = 0; j < width; ++j) sum[j] += scales[i] * a[j];
  }
}

#if defined(__x86_64__)
L2ROUTE_AVX2 inline void add_scaled_rows_avx2(const float* rows, std::size_t width,
                                              const VertexId* ids, const float* scales,
                                              std::size_t n, float* sum) {
  add_scaled_rows(rows, width, ids, scales, n, sum);
}
#endif

// Gradient in a query's row: the sum of slope · vertex row over its visits.
inline void sum_by_query(const Rows& rows, const Lesson& lesson, float* sum) {
  std::fill(sum, sum + rows.width, 0.0f);
  const VertexId* ids = lesson.vertices.data();
  const float* slopes = lesson.slopes.data();
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) {
    add_scaled_rows_avx2(rows.data, rows.width, ids, slopes, lesson.vertices.size(), sum);
    return;
  }
#endif
  add_scaled_rows(rows.data, rows.width, ids, slopes, lesson.vertices.size(), sum);
}

// `hidden` is a vertex that the walk does not see, as if it were not in the graph; -1 for none.
// The gradient in the query's row, if it is asked for, is summed at once, while the rows that the
// walk has read are still in the cache.
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
  if (hidden >= 0) scratch.visited.insert(hidden);
  walk.run();
  tracer.teach(place, lesson);
  if (query_gradient != nullptr) sum_by_query(rows, lesson, query_gradient);
}

// Visits of a batch: query i's are those in [offsets[i], offsets[i + 1]).
struct Visits {
  const std::int64_t* offsets;
  const std::int32_t* vertices;
  const float* slopes;
  std::size_t n_queries;
};

// rows[v] = sum of slope · query over v's visits, bias[v] = sum of slopes; visits are sorted by
// vertex first, queries in order, so the sums are the same for any number of threads.
inline void sum_by_vertex(const Visits& visits, const float* queries, std::size_t width,
                          std::size_t n_vertices, std::size_t n_threads, float* rows, float* bias) {
  const auto n_visits = static_cast<std::size_t>(visits.offsets[visits.n_queries]);
  std::vector<std::size_t> begin(n_vertices + 1, 0);
  for (std::size_t i = 0; i < n_visits; ++i) {
    ++begin[static_cast<std::size_t>(visits.vertices[i]) + 1];
  }
  for (std::size_t v = 0; v < n_vertices; ++v) begin[v + 1] += begin[v];
  struct Item {
    std::int32_t query;
    float slope;
  };
  std::vector<Item> items(n_visits);
  std::vector<std::size_t> cursor(begin.begin(), begin.end() - 1);
  for (std::size_t q = 0; q < visits.n_queries; ++q) {
    for (auto i = visits.offsets[q]; i < visits.offsets[q + 1]; ++i) {
      const auto vertex = static_cast<std::size_t>(visits.vertices[i]);
      items[cursor[vertex]++] = {static_cast<std::int32_t>(q), visits.slopes[i]};
    }
  }
  parallel_for(n_vertices, n_threads, [&](std::size_t v) {
    float* row = rows + v * width;
    for (std::size_t j = 0; j < width; ++j) row[j] = 0;
    float total = 0;
    for (std::size_t i = begin[v]; i < begin[v + 1]; ++i) {
      const float* query = queries + static_cast<std::size_t>(items[i].query) * width;
      const float slope = items[i].slope;
      for (std::size_t j = 0; j < width; ++j) row[j] += slope * query[j];
      total += slope;
    }
    bias[v] = total;
  });
}

}  // namespace l2route
