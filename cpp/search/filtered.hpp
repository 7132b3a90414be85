// Searches under filters: for every query the way that is expected to be fastest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "search/filter.hpp"
#include "search/searcher.hpp"
#include "search/ways.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// One filter for all queries, or one for each.
struct Filters {
  const Filter* const* each = nullptr;
  std::size_t n = 0;
  std::size_t n_queries = 0;

  const Filter& of(std::size_t query) const { return *each[n == 1 ? 0 : query]; }
};

template <class Tracer>
class FilteredSearch {
 public:
  FilteredSearch(const Searcher& searcher, const Limits& limits, const Filters& filters,
                 const Answers& answers)
      : searcher_(searcher),
        limits_(limits),
        filters_(filters),
        answers_(answers),
        n_(searcher.graph.bottom.n) {}

  void search(const float* queries, std::size_t n, std::size_t n_threads,
              std::vector<Tracer>& traces, Pulse& pulse) const {
    const std::size_t size = group_size(n, n_threads);
    parallel_for((n + size - 1) / size, n_threads, pulse, [&](std::size_t group) {
      const std::size_t first = group * size;
      const Batch batch{queries + first * searcher_.dim, first, std::min(size, n - first),
                        traces.data() + first, pulse};
      answer(batch);
    });
  }

 private:
  using Batch = Searcher::Batch<Tracer>;
  using QueryScratch = Searcher::QueryScratch;

  // What is left to do for one query, and what was done.
  struct Task {
    const Filter* filter = nullptr;
    const float* routed = nullptr;
    Way way = Way::any;  // any: done
    std::size_t n_scored = 0;
    std::size_t n_hops = 0;
    std::size_t n_looked = 0;

    std::size_t work() const { return n_scored + kScoresPerList * n_looked; }  // of walks
  };

  // Queries that a thread answers at a time: those that scan the same rows share each row.
  std::size_t group_size(std::size_t n, std::size_t n_threads) const {
    if (n == 0 || filters_.n != 1) return Searcher::kAbreast;
    Task task;
    task.filter = &filters_.of(0);
    if (first_way(task) != Way::scan) return Searcher::kAbreast;
    const std::size_t n_working = n_threads == 0 ? n_cores() : n_threads;
    return std::min(Scorer::kMaxBlock, (n + n_working - 1) / n_working);
  }

  void answer(const Batch& batch) const {
    QueryScratch* const scratch = Searcher::own_scratch();
    Task tasks[Scorer::kMaxBlock];
    for (std::size_t i = 0; i < batch.n; ++i) {
      searcher_.pad(batch.queries + i * searcher_.dim, scratch[i].query);
      tasks[i].filter = &filters_.of(batch.first + i);
      tasks[i].way = first_way(tasks[i]);
    }
    for (std::size_t i = 0; i < batch.n; ++i) {
      while (tasks[i].way != Way::any) step(batch, tasks, scratch, i);
    }
  }

  // Takes query i one way. Others that go the same way walk beside it, or scan with it.
  void step(const Batch& batch, Task* tasks, QueryScratch* scratch, std::size_t i) const {
    const Way way = tasks[i].way;
    std::size_t members[Scorer::kMaxBlock], n = 0;
    for (std::size_t j = i; j < batch.n; ++j) {
      const bool is_beside = way != Way::scan || tasks[j].filter == tasks[i].filter;
      if (tasks[j].way == way && is_beside) members[n++] = j;
    }
    if (way == Way::scan) {
      scan(batch, tasks, scratch, members, n);
      return;
    }
    n = std::min(n, Searcher::kAbreast);
    const std::size_t widest = std::max({limits_.beam, limits_.k, limits_.rerank});
    const std::size_t beam = limits_.beam == 0 ? n_ : std::min(widest, n_);
    const bool is_sorted =
        limits_.beam != 0 && (beam <= SortedFrontier::kMaxCapacity || limits_.slack >= 0);
    if (way == Way::look) {
      is_sorted ? walk<SortedFrontier, LookThrough>(batch, tasks, scratch, members, n, beam)
                : walk<HeapFrontier, LookThrough>(batch, tasks, scratch, members, n, beam);
    } else {
      is_sorted ? walk<SievedFrontier, Sieve>(batch, tasks, scratch, members, n, beam)
                : walk<HeapFrontier, Sieve>(batch, tasks, scratch, members, n, beam);
    }
  }

  template <class Frontier, class Gate>
  void walk(const Batch& batch, Task* tasks, QueryScratch* scratch, const std::size_t* members,
            std::size_t n_members, std::size_t beam) const {
    std::optional<Searcher::Lane<Frontier, Tracer, Gate>> lanes[Searcher::kAbreast];
    for (std::size_t m = 0; m < n_members; ++m) {
      const std::size_t i = members[m];
      Limits left = limits_;
      left.routing -= std::min(left.routing, limits_.is_budgeted ? tasks[i].n_scored : 0);
      route(tasks[i], scratch[i]);
      lanes[m].emplace(searcher_, tasks[i].routed, beam, left, batch.traces[i], scratch[i],
                       Gate{tasks[i].filter});
      lanes[m]->walk.set_patience(patience(tasks[i]));
    }
    Searcher::walk_abreast(lanes, n_members, batch.pulse);
    for (std::size_t m = 0; m < n_members; ++m) {
      Task& task = tasks[members[m]];
      const auto& walked = lanes[m]->walk;
      task.n_scored += lanes[m]->scorer.n_computed();
      task.n_hops += walked.n_hops();
      task.n_looked += walked.n_looked();
      const std::size_t n_wanted = std::min(limits_.k, task.filter->count);
      const bool is_done = !walked.is_out_of_patience() && lanes[m]->frontier.size() >= n_wanted;
      task.way = is_done ? Way::any : next_way(task);
      if (task.way != Way::any) continue;
      QueryScratch& own = scratch[members[m]];
      lanes[m]->frontier.best(searcher_.n_taken(limits_, answers_), own.walk.best);
      count(task, batch.first + members[m]);
      searcher_.finish(own, own.walk.best, limits_, batch.first + members[m], answers_);
    }
  }

  void route(Task& task, QueryScratch& scratch) const {
    if (task.routed == nullptr) task.routed = searcher_.route_query(scratch);
  }

  void count(const Task& task, std::size_t at) const {
    answers_.n_routing[at] = static_cast<std::int32_t>(task.n_scored);
    answers_.n_hops[at] = static_cast<std::int32_t>(task.n_hops);
    answers_.n_looked[at] = static_cast<std::int32_t>(task.n_looked);
  }

  // Nanoseconds per row of a scan. They depend on the call, not on how threads divide it: so do
  // answers.
  double scan_ns_of(std::size_t bytes) const {
    return shared_scan_ns(bytes, filters_.n == 1 ? filters_.n_queries : 1);
  }

  // Whether a scan is of the original vectors: there are few, or routing vectors do not suffice.
  bool scans_original(const Filter& filter) const {
    if (!searcher_.original) return false;
    if (limits_.scan_rerank == 0) return true;
    if (limits_.way != Way::any) return false;
    const double saved =
        scan_ns_of(searcher_.original->bytes) - scan_ns_of(searcher_.routing.bytes);
    const double added =
        2 * scan_ns(searcher_.original->bytes) * static_cast<double>(limits_.scan_rerank) +
        kCodedScanNs;
    return static_cast<double>(filter.count) * saved <= added;
  }

  // Scores everything that passes the filter of some queries.
  void scan(const Batch& batch, Task* tasks, QueryScratch* scratch, const std::size_t* members,
            std::size_t n_members) const {
    const Filter& filter = *tasks[members[0]].filter;
    const bool is_original = scans_original(filter);
    const bool reranks = searcher_.original && !is_original;
    const Rows& rows = is_original ? *searcher_.original : searcher_.routing;
    const std::size_t kept =
        std::min(std::max(limits_.k, reranks ? limits_.scan_rerank : 0), filter.most(n_));
    std::optional<Scorer> scorers[Scorer::kMaxBlock];
    Scanned scanned[Scorer::kMaxBlock];
    for (std::size_t m = 0; m < n_members; ++m) {
      QueryScratch& own = scratch[members[m]];
      if (!is_original) route(tasks[members[m]], own);
      scorers[m].emplace(rows, is_original ? own.query.data() : tasks[members[m]].routed,
                         &own.codes);
      own.nearest.reset(kept);
      scanned[m] = {&*scorers[m], &own.nearest, &batch.traces[members[m]]};
    }
    if (kept > 0) score_all(filter, scanned, n_members, scratch[0], batch.pulse);
    for (std::size_t m = 0; m < n_members; ++m) {
      Task& task = tasks[members[m]];
      QueryScratch& own = scratch[members[m]];
      const std::size_t at = batch.first + members[m], n_scored = scorers[m]->n_computed();
      task.way = Way::any;
      if (!is_original) task.n_scored += n_scored;
      count(task, at);
      if (reranks) {
        searcher_.finish(own, own.nearest.best(), limits_, at, answers_);
      } else {
        answers_.n_rerank[at] = static_cast<std::int32_t>(is_original ? n_scored : 0);
        searcher_.write(own.nearest.best(), limits_.k, at, answers_);
      }
    }
  }

  // A query of a scan.
  struct Scanned {
    Scorer* scorer = nullptr;
    Nearest* nearest = nullptr;
    Tracer* tracer = nullptr;
  };

  // Scores blocks of the vertices that pass; the rows of the next block are prefetched.
  void score_all(const Filter& filter, const Scanned* scanned, std::size_t n_scanned,
                 QueryScratch& scratch, Pulse& pulse) const {
    Scorer* scorers[Scorer::kMaxBlock];
    for (std::size_t m = 0; m < n_scanned; ++m) scorers[m] = scanned[m].scorer;
    if (scratch.scores.size() < n_scanned * Filter::kBlock) {
      scratch.scores.resize(n_scanned * Filter::kBlock);
    }
    float* const scores = scratch.scores.data();
    const VertexId* waiting = nullptr;  // prefetched
    std::size_t n_waiting = 0, n_blocks = 0;
    const auto score_waiting = [&] {
      if (n_waiting == 0) return;
      Scorer::score_block(scorers, n_scanned, waiting, n_waiting, scores, Filter::kBlock);
      for (std::size_t m = 0; m < n_scanned; ++m) {
        const float* const own = scores + m * Filter::kBlock;
        for (std::size_t j = 0; j < n_waiting; ++j) scanned[m].tracer->visit(waiting[j], own[j], 0);
        scanned[m].nearest->add(waiting, own, n_waiting);
      }
    };
    VertexId alive[2][Filter::kBlock];  // a row may be written while its vertex is not alive
    filter.each_block(n_, scratch.ids, [&](const VertexId* ids, std::size_t n) {
      if (filter.labels != nullptr) {
        VertexId* const own = alive[n_blocks % 2];
        const auto is_alive = [&](VertexId id) { return filter.is_alive(id); };
        n = static_cast<std::size_t>(std::copy_if(ids, ids + n, own, is_alive) - own);
        ids = own;
      }
      for (std::size_t j = 0; j < n; ++j) scorers[0]->rows().prefetch(ids[j]);
      score_waiting();
      waiting = ids;
      n_waiting = n;
      if (++n_blocks % Searcher::kStepsPerBeat == 0) pulse.beat();
    });
    score_waiting();
  }

  // Whether the budget allows a scan.
  bool may_scan(const Task& task) const {
    if (!limits_.is_budgeted) return true;
    const std::size_t left = limits_.routing - std::min(limits_.routing, task.n_scored);
    if (!scans_original(*task.filter)) return task.filter->count <= left;
    return task.filter->count <= limits_.rerank + left * searcher_.routing_dim / searcher_.dim;
  }

  double scan_cost(const Task& task) const {
    const std::size_t bytes =
        scans_original(*task.filter) ? searcher_.original->bytes : searcher_.routing.bytes;
    return static_cast<double>(task.filter->count) * scan_ns_of(bytes);
  }

  double expected() const {
    if (limits_.n_work != 0) return static_cast<double>(limits_.n_work);
    if (limits_.slack >= 0) return expected_work(4 * limits_.k);
    return expected_work(std::max({limits_.beam, limits_.k, limits_.rerank}));
  }

  Way first_way(const Task& task) const {
    if (limits_.way != Way::any) return limits_.way;
    const double share = static_cast<double>(task.filter->count) / static_cast<double>(n_);
    const double two_hops = static_cast<double>(searcher_.graph.bottom.width) *
                            static_cast<double>(searcher_.graph.bottom.width) * share;
    const bool is_short = scan_cost(task) <= expected() * walk_ns(searcher_.routing.bytes) ||
                          task.filter->count <= limits_.beam || limits_.beam == 0;
    if (may_scan(task) && (is_short || two_hops < kFewestInTwoHops)) return Way::scan;
    return share >= kSieveShare ? Way::sieve : Way::look;
  }

  Way next_way(const Task& task) const {
    if (limits_.way != Way::any) return Way::any;
    if (!may_scan(task)) return Way::any;
    return task.way == Way::sieve && patience(task, Way::look) > 0 ? Way::look : Way::scan;
  }

  // Work after which a walk is given up: all walks together take as long as the scan.
  std::size_t patience(const Task& task) const { return patience(task, task.way); }
  std::size_t patience(const Task& task, Way way) const {
    if (limits_.way != Way::any) return std::numeric_limits<std::size_t>::max();
    if (!may_scan(task)) return std::numeric_limits<std::size_t>::max();
    const auto most = static_cast<std::size_t>(scan_cost(task) / walk_ns(searcher_.routing.bytes));
    const std::size_t unspent = most - std::min(most, task.work());
    if (way != Way::sieve) return unspent;
    return std::min(unspent / 2, static_cast<std::size_t>(4 * expected()));
  }

  const Searcher& searcher_;
  const Limits& limits_;
  const Filters& filters_;
  const Answers& answers_;
  const std::size_t n_;
};

}  // namespace l2route
