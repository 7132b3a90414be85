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
        sieve_limits_(sieve_limits(limits)),
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
    Way way = Way::any;  // any: done
    std::size_t n_scored = 0;
    std::size_t n_hops = 0;
    std::size_t n_looked = 0;

    std::size_t work() const { return n_scored + kScoresPerList * n_looked; }  // of walks
  };

  // Queries that a thread answers at a time: those that scan the same rows share each row.
  std::size_t group_size(std::size_t n, std::size_t n_threads) const {
    if (n == 0 || filters_.n != 1) return Searcher::kAbreast;
    const std::size_t n_working = n_threads == 0 ? n_cores() : n_threads;
    return std::min(Scorer::kMaxBlock, (n + n_working - 1) / n_working);
  }

  void answer(const Batch& batch) const {
    QueryScratch* const scratch = Searcher::own_scratch();
    Task tasks[Scorer::kMaxBlock];
    for (std::size_t i = 0; i < batch.n; ++i) {
      tasks[i].filter = &filters_.of(batch.first + i);
      tasks[i].way = first_way(tasks[i]);
    }
    const auto is_walking = [](Way way) { return way == Way::look || way == Way::sieve; };
    for (std::size_t i = 0; i < batch.n; ++i) {  // those that give up scan together at the end
      while (is_walking(tasks[i].way)) step(batch, tasks, scratch, i);
    }
    for (std::size_t i = 0; i < batch.n; ++i) {
      if (tasks[i].way == Way::scan) step(batch, tasks, scratch, i);
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
    const Limits& limits = limits_of(way);
    const std::size_t widest = std::max({limits.beam, limits.k, limits.rerank});
    const std::size_t beam = limits.beam == 0 ? n_ : std::min(widest, n_);
    const bool is_sorted =
        limits.beam != 0 && (beam <= SortedFrontier::kMaxCapacity || limits.slack >= 0);
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
    const Limits& limits = limits_of(tasks[members[0]].way);
    for (std::size_t m = 0; m < n_members; ++m) {
      const std::size_t i = members[m];
      Limits left = limits;
      left.routing -= std::min(left.routing, limits.is_budgeted ? tasks[i].n_scored : 0);
      const float* const routed = searcher_.prepare(query_of(batch, i), scratch[m]);
      lanes[m].emplace(searcher_, routed, beam, left, batch.traces[i], scratch[m],
                       Gate{tasks[i].filter});
      lanes[m]->walk.set_patience(patience(tasks[i]));
      if (limits_.sieve && may_give_up(tasks[i])) lanes[m]->walk.give_up_if_far(share(tasks[i]));
    }
    searcher_.walk_abreast(lanes, n_members, batch.pulse);
    for (std::size_t m = 0; m < n_members; ++m) {
      Task& task = tasks[members[m]];
      const auto& walked = lanes[m]->walk;
      task.n_scored += lanes[m]->scorer.n_computed();
      task.n_hops += walked.n_hops();
      task.n_looked += walked.n_looked();
      const std::size_t n_wanted = std::min(limits_.k, task.filter->count);
      const bool is_done = !walked.has_given_up() && lanes[m]->frontier.size() >= n_wanted;
      task.way = is_done ? Way::any : next_way(task);
      if (task.way != Way::any) continue;
      QueryScratch& own = scratch[m];
      searcher_.take_best(*lanes[m], limits, answers_);
      count(task, batch.first + members[m]);
      searcher_.finish(own, own.walk.best, limits, batch.first + members[m], answers_);
    }
  }

  const float* query_of(const Batch& batch, std::size_t i) const {
    return batch.queries + i * searcher_.dim;
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
      QueryScratch& own = scratch[m];
      searcher_.pad(query_of(batch, members[m]), own.query);
      const float* const query = is_original ? own.query.data() : searcher_.route_query(own);
      scorers[m].emplace(rows, query, &own.codes);
      own.nearest.reset(kept);
      scanned[m] = {&*scorers[m], &own.nearest, &batch.traces[members[m]]};
    }
    if (kept > 0) score_all(filter, scanned, n_members, scratch[0], batch.pulse);
    for (std::size_t m = 0; m < n_members; ++m) {
      Task& task = tasks[members[m]];
      QueryScratch& own = scratch[m];
      const std::size_t at = batch.first + members[m], n_scored = scorers[m]->n_computed();
      task.way = Way::any;
      if (!is_original) task.n_scored += n_scored;
      count(task, at);
      if (reranks) {
        searcher_.prefetch_original(own.nearest.best());
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
    return static_cast<double>(task.filter->count) * scan_ns_of(scanned_bytes(*task.filter));
  }

  std::size_t scanned_bytes(const Filter& filter) const {
    return scans_original(filter) ? searcher_.original->bytes : searcher_.routing.bytes;
  }

  // Work that a walk is expected to be.
  double expected(const Task& task, Way way) const {
    const double unfiltered = expected(limits_of(way));
    // One of so many that are visited passes.
    return way == Way::sieve && limits_.sieve ? unfiltered / share(task) : unfiltered;
  }

  static double expected(const Limits& limits) {
    if (limits.n_work != 0) return static_cast<double>(limits.n_work);
    if (limits.slack >= 0) return expected_work(4 * limits.k);
    return expected_work(std::max({limits.beam, limits.k, limits.rerank}));
  }

  double share(const Task& task) const {
    return static_cast<double>(task.filter->count) / static_cast<double>(n_);
  }

  // The walk that is expected to be shorter.
  Way walking_way(const Task& task) const {
    if (share(task) >= kSieveShare) return Way::sieve;
    if (!limits_.sieve) return Way::look;
    return expected(task, Way::sieve) <= expected(task, Way::look) ? Way::sieve : Way::look;
  }

  Way first_way(const Task& task) const {
    if (limits_.way != Way::any) return limits_.way;
    const Way way = walking_way(task);
    const std::size_t width = searcher_.graph.bottom.width, beam = limits_of(way).beam;
    const double two_hops = static_cast<double>(width * width) * share(task);
    const bool is_short =
        in_work(scan_cost(task)) <= expected(task, way) || task.filter->count <= beam || beam == 0;
    if (may_scan(task) && (is_short || two_hops < kFewestInTwoHops)) return Way::scan;
    return way;
  }

  Way next_way(const Task& task) const {
    if (!may_give_up(task)) return Way::any;
    const double far_work = kFarWork * expected(task, Way::look);
    const bool may_look = task.way == Way::sieve && far_work <= static_cast<double>(unspent(task));
    return may_look ? Way::look : Way::scan;
  }

  // Whether another way may follow a walk.
  bool may_give_up(const Task& task) const { return limits_.way == Way::any && may_scan(task); }

  // Work after which a walk is given up. A walk through what does not pass leaves some for one on
  // what passes if it takes much longer than expected.
  std::size_t patience(const Task& task) const {
    if (!may_give_up(task)) return std::numeric_limits<std::size_t>::max();
    if (task.way != Way::sieve) return unspent(task);
    const auto left = static_cast<double>(unspent(task));
    return static_cast<std::size_t>(std::min(left, 4 * expected(task, Way::sieve)));
  }

  // Work that is left for walks. They and the scan that follows take at most twice as long as the
  // exact scan, and walks no longer than this query's own scan, which few others may share.
  std::size_t unspent(const Task& task) const {
    const auto count = static_cast<double>(task.filter->count);
    const std::size_t exact = (searcher_.original ? *searcher_.original : searcher_.routing).bytes;
    const double most = std::min(2 * count * scan_ns_of(exact) - scan_cost(task),
                                 count * scan_ns(scanned_bytes(*task.filter)));
    const auto allowed = static_cast<std::size_t>(std::max(in_work(most), 0.0));
    return allowed - std::min(allowed, task.work());
  }

  double in_work(double ns) const { return ns / walk_ns(searcher_.routing.bytes); }

  const Limits& limits_of(Way way) const { return way == Way::sieve ? sieve_limits_ : limits_; }

  static Limits sieve_limits(const Limits& limits) {
    Limits own = limits;
    if (!limits.sieve) return own;
    own.beam = limits.sieve->beam;
    own.rerank = limits.sieve->rerank;
    own.slack = limits.sieve->slack;
    own.n_work = limits.sieve->n_work;
    return own;
  }

  const Searcher& searcher_;
  const Limits& limits_;
  const Limits sieve_limits_;
  const Filters& filters_;
  const Answers& answers_;
  const std::size_t n_;
};

}  // namespace l2route
