// Batches of rollouts, and sums of gradients that are the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "learn/rollout.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// Where the hops to each query's target are: in which block, and in which of its columns.
struct Targets {
  const HopBlock* blocks;
  const std::int32_t* block_of;
  const std::int32_t* column_of;
};

// One walk per query.
struct RolloutBatch {
  const float* queries;  // padded like the vertices' rows
  std::size_t n;
  Targets targets;
  const std::int64_t* query_ids;  // the noise of a walk depends on its query's id
  const VertexId* hidden;         // a vertex that the walk treats as not in the graph; -1 for none
  // Where the walk of each query starts, padded with -1 [n, n_starts]; null for the graph's entry
  // points. What finding it costs, in scores, is part of the budget [n].
  const VertexId* starts = nullptr;
  std::size_t n_starts = 0;
  const std::int32_t* start_costs = nullptr;
};

// Walks for query i. The gradient in the query's row, the sum of score gradient times vertex row
// over the visits, is optional; it is computed at once, while the rows are still in the cache.
inline void run_rollout(const GraphView& graph, const Rows& rows, const RolloutBatch& batch,
                        std::size_t i, const RolloutOptions& options, Lesson& lesson,
                        float* query_gradient) {
  thread_local Scratch scratch;
  thread_local std::vector<std::int32_t> place;
  if (place.size() < graph.bottom.n) place.resize(graph.bottom.n);
  RolloutTracer tracer(options,
                       batch.targets.blocks[static_cast<std::size_t>(batch.targets.block_of[i])],
                       static_cast<std::size_t>(batch.targets.column_of[i]),
                       static_cast<std::uint64_t>(batch.query_ids[i]));
  Scorer scorer(rows, batch.queries + i * rows.width);
  scratch.heap.reset(graph.bottom.n);
  Walk<HeapFrontier, RolloutTracer> walk(graph, scorer, scratch.heap, tracer, options.budget,
                                         scratch);
  if (batch.hidden[i] >= 0) walk.hide(batch.hidden[i]);
  if (batch.starts == nullptr) {
    walk.start();
  } else {
    scorer.charge(static_cast<std::size_t>(batch.start_costs[i]));
    walk.start_at(batch.starts + i * batch.n_starts, batch.n_starts);
  }
  walk.finish();
  tracer.teach(place, lesson);
  if (query_gradient == nullptr) return;
  std::fill(query_gradient, query_gradient + rows.width, 0.0f);
  rows.add(rows.floats(), rows.width, lesson.vertices.data(), lesson.gradients.data(),
           lesson.vertices.size(), query_gradient);
}

// Walks for all queries; `query_gradient` [n, width] may be null.
inline std::vector<Lesson> run_rollouts(const GraphView& graph, const Rows& rows,
                                        const RolloutBatch& batch, const RolloutOptions& options,
                                        std::size_t n_threads, float* query_gradient,
                                        Pulse& pulse) {
  std::vector<Lesson> lessons(batch.n);
  parallel_for(batch.n, n_threads, pulse, [&](std::size_t i) {
    float* gradient = query_gradient == nullptr ? nullptr : query_gradient + i * rows.width;
    run_rollout(graph, rows, batch, i, options, lessons[i], gradient);
  });
  return lessons;
}

// Visits of a batch: query i's are those in [offsets[i], offsets[i + 1]).
struct Visits {
  const std::int64_t* offsets;
  const VertexId* vertices;
  const float* gradients;
  std::size_t n_queries;
};

// rows[v] = sum of score gradient times query over v's visits, bias[v] = sum of the gradients.
// Visits are sorted by vertex and then query, so the sums are the same for any number of threads.
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
