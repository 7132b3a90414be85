// Inserts vertices into a graph that others may be searching.
//
// Vertices come in batches. `place` finds candidates on the graph as it was and among the batch,
// chooses the new vertices' own lists and parents, and changes nothing that a reader can see;
// `publish` adds the edges back to them. Both do the same for any number of threads.
//
// A vertex whose vector equals another's is a copy of it. Copies form a tree below the vertex they
// equal, and are nobody else's neighbours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "build/candidates.hpp"
#include "build/prune.hpp"
#include "kernels/rows.hpp"
#include "live/links.hpp"
#include "threads/parallel.hpp"
#include "threads/pulse.hpp"

namespace l2route {

struct InsertOptions {
  std::size_t ef = 0;            // beam width of the walks
  std::size_t n_candidates = 0;  // nearest vertices among which neighbours are chosen
  std::size_t degree = 0;        // most neighbours that are chosen for a new vertex
  std::size_t trimmed = 0;       // length to which a list is cut when it overflows
  float alpha = 1;               // for lists of new vertices; at least 1; see prune.hpp
  float trim_alpha = 1;          // for lists that overflow
};

class Inserter {
 public:
  Links links;
  Rows walked;  // by which walks score
  Rows exact;   // floats or half floats by which lists are pruned
  InsertOptions options;
  std::vector<VertexId> entries;  // none while the graph is empty; the first is the tree's root
  const std::int64_t* labels = nullptr;  // [capacity]; vertices labelled -1 get no new neighbours
  float longest = 0;                     // squared length of the longest vector, for inner products

  // Chooses lists and parents of new vertices, whose rows are written. Nothing leads to them yet.
  // `queries` [n, width of walked rows] are what the walks search for; if null, the exact rows.
  void place(const VertexId* slots, std::size_t n, const float* queries, std::size_t n_threads,
             Pulse& pulse) {
    if (exact.kind == ScoreKind::inner_product) {
      longest = std::max(longest, longest_square(exact, slots, n));
    }
    Batch batch = without_copies(slots, n, queries);
    find_neighbors(batch, n_threads, pulse);
    avoid_copies(batch);
    std::size_t leader = 0;
    for (std::size_t i = 0; i < n; ++i) {
      Placed& placed = batch.is_leader[i] ? batch.placed[leader++] : batch.copy;
      if (!batch.is_leader[i]) placed.equal = batch.equal[i];
      batch.waiting.erase(slots[i]);
      attach(slots[i], placed, batch);
    }
  }

  // Chooses new neighbours for vertices that are no copies, by walks from their present ones.
  void renew(const std::vector<VertexId>& vertices, std::size_t n_threads, Pulse& pulse) const {
    const Pruner pruner(exact, options.alpha, longest);
    const Finder finder{whole_graph(), links.copies, walked, exact, options.ef};
    const std::vector<const float*> queries(vertices.size(), nullptr);
    const auto start = [&](std::size_t i) { return finder.from_neighbors(vertices[i]); };
    std::vector<std::vector<VertexId>> lists(vertices.size());
    finder.find({vertices.data(), queries.data(), vertices.size()}, n_threads, pulse, start,
                [&](std::size_t i, Scorer&, std::vector<Key>& best) {
                  lists[i] = renewed(pruner, vertices[i], best);
                });
    for (std::size_t i = 0; i < vertices.size(); ++i) {
      links.replace(vertices[i], lists[i].data(), lists[i].size());
    }
    publish(vertices.data(), vertices.size(), n_threads, pulse);
  }

  // Adds the edges that lead to placed vertices, gathered by the vertices they start from.
  void publish(const VertexId* slots, std::size_t n, std::size_t n_threads, Pulse& pulse) const {
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < n; ++i) gather_edges(slots[i], edges);
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (i == 0 || edges[i].first != edges[i - 1].first) begins.push_back(i);
    }
    begins.push_back(edges.size());
    const Pruner pruner(exact, options.alpha, longest);
    parallel_for(begins.size() - 1, n_threads, pulse, [&](std::size_t group) {
      extend(pruner, edges.data() + begins[group], begins[group + 1] - begins[group]);
    });
  }

  GraphView whole_graph() const {
    GraphView graph;
    graph.bottom = links.view();
    graph.entries = entries.data();
    graph.n_entries = entries.size();
    graph.max_width = std::max(links.width, entries.size());
    return graph;
  }

 private:
  using Edge = std::pair<VertexId, VertexId>;  // from an old or new vertex to a new one

  // What was found for a new vertex.
  struct Placed {
    std::vector<VertexId> nearest;    // candidates, from near to far
    std::vector<VertexId> neighbors;  // those chosen
    VertexId equal = kNone;           // a vertex with an equal vector
  };

  // New vertices. Leaders are those without an equal vector before them in the batch.
  struct Batch {
    std::vector<VertexId> leaders;
    std::vector<const float*> queries;  // of leaders
    std::vector<Placed> placed;         // of leaders
    std::vector<bool> is_leader;        // [n]
    std::vector<VertexId> equal;  // [n]; the leader with an equal vector, or the vertex itself
    Placed copy;                  // of a vertex that is no leader
    std::unordered_set<VertexId> members;
    std::unordered_set<VertexId> waiting;                              // not in the tree so far
    std::unordered_map<VertexId, std::vector<VertexId>> new_children;  // not in lists so far
  };

  // Vectors as bytes; -0 becomes 0.
  std::vector<float> floats_of(const VertexId* slots, std::size_t n) const {
    std::vector<float> floats(n * exact.width);
    for (std::size_t i = 0; i < n; ++i) copy_floats(exact, slots[i], &floats[i * exact.width]);
    for (float& value : floats) value += 0.0f;
    return floats;
  }

  Batch without_copies(const VertexId* slots, std::size_t n, const float* queries) const {
    const std::vector<float> floats = floats_of(slots, n);
    std::unordered_map<std::string_view, VertexId> first;
    Batch batch;
    batch.members.insert(slots, slots + n);
    batch.waiting = batch.members;
    for (std::size_t i = 0; i < n; ++i) {
      const std::string_view content(reinterpret_cast<const char*>(&floats[i * exact.width]),
                                     exact.width * sizeof(float));
      const auto [found, is_new] = first.try_emplace(content, slots[i]);
      batch.is_leader.push_back(is_new);
      batch.equal.push_back(found->second);
      if (!is_new) continue;
      batch.leaders.push_back(slots[i]);
      batch.queries.push_back(queries == nullptr ? nullptr : queries + i * walked.width);
    }
    batch.placed.resize(batch.leaders.size());
    return batch;
  }

  void find_neighbors(Batch& batch, std::size_t n_threads, Pulse& pulse) const {
    const Pruner pruner(exact, options.alpha, longest);
    const Finder finder{whole_graph(), links.copies, walked, exact, options.ef};
    const Sought sought{batch.leaders.data(), batch.queries.data(), batch.leaders.size()};
    const auto start = [&](std::size_t) { return finder.graph; };
    finder.find(sought, n_threads, pulse, start,
                [&](std::size_t i, Scorer& scorer, std::vector<Key>& best) {
                  std::erase_if(best, [this](Key key) { return is_dead(vertex_of(key)); });
                  add_leaders(batch, i, scorer, best);
                  choose(pruner, batch.leaders[i], best, batch.placed[i]);
                });
  }

  bool is_dead(VertexId vertex) const {
    return labels != nullptr && labels[static_cast<std::size_t>(vertex)] == -1;
  }

  // Adds the other leaders to the best of leader i, and leaves the nearest candidates.
  void add_leaders(const Batch& batch, std::size_t i, Scorer& scorer,
                   std::vector<Key>& best) const {
    const std::size_t n_most = options.n_candidates;
    const Key limit = best.size() < n_most ? kNoLimit : best[n_most - 1];
    const std::size_t n = batch.leaders.size();
    thread_local std::vector<float> scores;
    scores.resize(n);
    scorer.score(batch.leaders.data(), n, scores.data());
    for (std::size_t j = 0; j < n; ++j) {
      if (j == i || scores[j] > score_of(limit)) continue;
      best.push_back(make_key(scores[j], batch.leaders[j]));
    }
    const std::size_t n_kept = std::min(n_most, best.size());
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(n_kept), best.end());
    best.resize(n_kept);
  }

  void choose(const Pruner& pruner, VertexId slot, const std::vector<Key>& best,
              Placed& placed) const {
    std::vector<VertexId> ids(best.size());
    std::transform(best.begin(), best.end(), ids.begin(), vertex_of);
    Closeup& closeup = pruner.look(slot, ids);
    for (const Closeup::Candidate& one : closeup.candidates) {
      placed.nearest.push_back(one.id());
      if (placed.equal < 0 && one.distance() == 0 && equals(slot, one.id())) {
        placed.equal = one.id();
      }
    }
    if (placed.equal >= 0) return;
    placed.neighbors.resize(ids.size());
    placed.neighbors.resize(
        closeup.choose(pruner.alpha(), options.degree, kKeepNone, placed.neighbors.data()));
  }

  // New neighbours of a vertex, among the best of a walk and its present ones.
  std::vector<VertexId> renewed(const Pruner& pruner, VertexId vertex,
                                std::vector<Key>& best) const {
    std::erase_if(best, [this](Key key) { return is_dead(vertex_of(key)); });
    best.resize(std::min(best.size(), options.n_candidates));
    const VertexId* const list = links.row(vertex);
    std::vector<VertexId> ids(list, std::find(list, list + links.width, kNone));
    std::erase_if(ids, [&](VertexId id) { return id == vertex || is_dead(id); });
    for (const Key key : best) ids.push_back(vertex_of(key));
    Closeup& closeup = pruner.look(vertex, ids);
    std::vector<VertexId> chosen(ids.size());
    const auto is_kept = [&](VertexId id) { return links.is_child(id, vertex); };
    chosen.resize(closeup.choose(pruner.alpha(), options.degree, is_kept, chosen.data()));
    return chosen;
  }

  // Leaders that turned out to be copies give way to the vertices that they equal. No list has
  // both, because of equal candidates only one is chosen.
  static void avoid_copies(Batch& batch) {
    std::unordered_map<VertexId, VertexId> original;
    for (std::size_t i = 0; i < batch.leaders.size(); ++i) {
      if (batch.placed[i].equal >= 0) original[batch.leaders[i]] = batch.placed[i].equal;
    }
    if (original.empty()) return;
    const auto replace = [&original](VertexId& id) {
      const auto found = original.find(id);
      if (found != original.end()) id = found->second;
    };
    for (Placed& placed : batch.placed) {
      std::for_each(placed.nearest.begin(), placed.nearest.end(), replace);
      std::for_each(placed.neighbors.begin(), placed.neighbors.end(), replace);
    }
  }

  bool equals(VertexId a, VertexId b) const {
    const VertexId both[2] = {a, b};
    const std::vector<float> floats = floats_of(both, 2);
    return std::equal(floats.begin(), floats.begin() + static_cast<std::ptrdiff_t>(exact.width),
                      floats.begin() + static_cast<std::ptrdiff_t>(exact.width));
  }

  // Writes a new vertex's list and parent. All before it in the batch have theirs.
  void attach(VertexId slot, const Placed& placed, Batch& batch) {
    const bool is_copy = placed.equal >= 0;
    links.set_copy(slot, is_copy);
    const VertexId original = is_copy ? original_of(placed.equal) : kNone;
    links.set_parent(slot, is_copy           ? parent_of_copy(slot, original, batch)
                           : entries.empty() ? kNone
                                             : parent_of(slot, placed, batch));
    if (links.parent(slot) >= 0) batch.new_children[links.parent(slot)].push_back(slot);
    if (entries.empty()) entries.push_back(slot);
    write_list(slot, is_copy ? std::vector<VertexId>{original} : placed.neighbors);
  }

  void write_list(VertexId slot, const std::vector<VertexId>& neighbors) const {
    const std::size_t n = std::min(neighbors.size(), links.width);
    for (std::size_t i = 0; i < links.width; ++i) {
      links.set(slot, i, i < n ? neighbors[i] : kNone);
    }
  }

  VertexId original_of(VertexId vertex) const {
    while (links.is_copy(vertex)) vertex = links.parent(vertex);
    return vertex;
  }

  // Children in the tree that are copies, or that are not, ascending; with those that no list has
  // yet.
  std::vector<VertexId> children_of(VertexId vertex, bool are_copies, const Batch& batch) const {
    std::vector<VertexId> children;
    const auto add = [&](VertexId id) {
      if (links.is_child(id, vertex) && links.is_copy(id) == are_copies) children.push_back(id);
    };
    const VertexId* list = links.row(vertex);
    for (std::size_t i = 0; i < links.width && list[i] >= 0; ++i) {
      if (!batch.members.contains(list[i])) add(list[i]);
    }
    const auto found = batch.new_children.find(vertex);
    if (found != batch.new_children.end())
      std::for_each(found->second.begin(), found->second.end(), add);
    std::sort(children.begin(), children.end());
    return children;
  }

  // Descends from a vertex to one with fewer children of a kind than `most`, by a way that depends
  // on the slot alone, so that no branch grows long.
  template <class Most>
  VertexId with_room(VertexId vertex, VertexId slot, bool for_copy, const Most& most,
                     const Batch& batch) const {
    auto chance = static_cast<std::uint64_t>(slot) * 0x9E3779B97F4A7C15u;
    for (;;) {
      const std::vector<VertexId> children = children_of(vertex, for_copy, batch);
      const std::size_t n_others = children_of(vertex, !for_copy, batch).size();
      if (children.size() < most(vertex) && children.size() + n_others < links.width) return vertex;
      chance ^= chance >> 29;
      chance *= 0xBF58476D1CE4E5B9u;
      vertex = children[(chance >> 32) % children.size()];
    }
  }

  // A vertex has one copy in its list, a copy several.
  VertexId parent_of_copy(VertexId slot, VertexId original, const Batch& batch) const {
    const auto most = [this](VertexId vertex) { return links.max_copies(vertex); };
    return with_room(original, slot, true, most, batch);
  }

  // The nearest candidate that is in the tree and has room for a child.
  VertexId parent_of(VertexId slot, const Placed& placed, const Batch& batch) const {
    const auto most = [this](VertexId) { return links.max_children(); };
    VertexId start = kNone;
    for (const VertexId id : placed.nearest) {
      if (batch.waiting.contains(id) || links.is_copy(id)) continue;
      if (start < 0) start = id;
      if (children_of(id, false, batch).size() < links.max_children()) return id;
    }
    return with_room(start >= 0 ? start : original_of(entries.front()), slot, false, most, batch);
  }

  void gather_edges(VertexId slot, std::vector<Edge>& edges) const {
    if (links.parent(slot) >= 0) edges.emplace_back(links.parent(slot), slot);
    if (links.is_copy(slot)) return;
    const VertexId* list = links.row(slot);
    for (std::size_t i = 0; i < links.width && list[i] >= 0; ++i) edges.emplace_back(list[i], slot);
  }

  // Adds edges that start from one vertex. If its list overflows, it is pruned; children stay.
  void extend(const Pruner& pruner, const Edge* edges, std::size_t n) const {
    const VertexId vertex = edges->first;
    VertexId* const list = links.row(vertex);
    const VertexId* const end = std::find(list, list + links.width, kNone);
    thread_local std::vector<VertexId> added, all, chosen;
    added.clear();
    for (std::size_t i = 0; i < n; ++i) {
      if (std::find(static_cast<const VertexId*>(list), end, edges[i].second) == end) {
        added.push_back(edges[i].second);
      }
    }
    const auto n_free = static_cast<std::size_t>(list + links.width - end) +
                        static_cast<std::size_t>(std::count(list, list + (end - list), vertex));
    if (added.size() <= n_free) {
      std::size_t next = 0;
      for (std::size_t i = 0; next < added.size(); ++i) {
        if (list[i] < 0 || list[i] == vertex) links.set(vertex, i, added[next++]);
      }
      return;
    }
    all.assign(static_cast<const VertexId*>(list), end);
    all.insert(all.end(), added.begin(), added.end());
    Closeup& closeup = pruner.look(vertex, all);
    chosen.resize(all.size());
    const auto is_kept = [&](VertexId id) { return links.is_child(id, vertex); };
    const std::size_t n_chosen =
        closeup.choose(options.trim_alpha, options.trimmed, is_kept, chosen.data());
    links.replace(vertex, chosen.data(), n_chosen);
  }
};

}  // namespace l2route
