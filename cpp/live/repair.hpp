// Removal of dead vertices from a graph that others search meanwhile.
//
// First the tree is mended: a child of a dead vertex gets a live parent near it (`adopt`). When no
// reader from before is left, dead vertices are removed from all lists: each gives way to a few of
// its own neighbours (`sweep`), so that the vertices around it stay joined, as in IP-DiskANN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "build/prune.hpp"
#include "live/links.hpp"
#include "threads/parallel.hpp"

namespace l2route {

class Repair {
 public:
  // Neighbours of a dead vertex that may take its place in a list, and those that do.
  static constexpr std::size_t kConsidered = 8;
  static constexpr std::size_t kSubstitutes = 3;

  // `labels` [capacity] are −1 for dead vertices.
  Repair(const Links& links, const std::int64_t* labels, VertexId* entries, std::size_t n_entries,
         const Pruner& pruner)
      : links_(links), labels_(labels), entries_(entries), n_entries_(n_entries), pruner_(pruner) {}

  bool is_live(VertexId vertex) const { return labels_[static_cast<std::size_t>(vertex)] != -1; }

  // Gives live parents to the live children of dead vertices, and live vertices to the entries.
  // Lists gain edges and lose none of the tree's.
  void adopt(const std::vector<VertexId>& dead) const {
    Heirs heirs;
    for (const VertexId vertex : dead) {
      const VertexId* const list = links_.row(vertex);
      const std::vector<VertexId> known(list, list + links_.width);
      for (const VertexId child : known) {
        if (child < 0) break;
        if (!links_.is_child(child, vertex) || !is_live(child)) continue;
        if (!links_.is_copy(child) || !rehouse_copy(child, heirs)) rehouse(child);
      }
    }
    for (const VertexId vertex : dead) links_.set_parent(vertex, kNone);  // no list has to keep it
    replace_entries();
  }

  // Removes dead vertices from the lists of live ones among the first n.
  void sweep(std::size_t n, std::size_t n_threads, Pulse& pulse) const {
    parallel_for(n, n_threads, pulse, [&](std::size_t v) {
      const auto vertex = static_cast<VertexId>(v);
      if (!is_live(vertex)) return;
      const VertexId* const list = links_.row(vertex);
      for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
        if (!is_live(list[i])) {
          mend(vertex);
          return;
        }
      }
    });
  }

 private:
  // The copy that takes the place of a dead vertex among vertices that are no copies.
  using Heirs = std::unordered_map<VertexId, VertexId>;
  static constexpr std::size_t kMaxDepth = 512;  // steps to the root before a host is passed over

  // Finds a live parent of equal vector for a copy. If all above it are dead, it ceases to be a
  // copy, and others become copies of it: then it needs a parent as other vertices do, and the
  // answer is false.
  bool rehouse_copy(VertexId copy, Heirs& heirs) const {
    VertexId above = links_.parent(copy);
    while (!is_live(above) && links_.is_copy(above)) above = links_.parent(above);
    if (!is_live(above)) {
      const auto [heir, is_first] = heirs.try_emplace(above, copy);
      if (is_first) {
        links_.set_copy(copy, false);
        return false;
      }
      above = heir->second;
    }
    settle(copy, with_room(above, true));
    return true;
  }

  // Finds a live parent for a vertex whose parent is dead.
  void rehouse(VertexId vertex) const {
    for (const VertexId host : hosts(vertex)) {
      if (has_room(host, false) && is_apart(host, vertex)) return settle(vertex, host);
    }
    VertexId ancestor = links_.parent(vertex);
    while (ancestor >= 0 && (!is_live(ancestor) || links_.is_copy(ancestor))) {
      ancestor = links_.parent(ancestor);
    }
    if (ancestor < 0) ancestor = root_besides(vertex);
    if (ancestor < 0) {  // no other live root: the vertex becomes one
      links_.set_parent(vertex, kNone);
      store_id(entries_, vertex);
      return;
    }
    settle(vertex, with_room(ancestor, false));
  }

  // Live vertices near a vertex, the nearest first: its neighbours, and those of its parent.
  std::vector<VertexId> hosts(VertexId vertex) const {
    std::vector<VertexId> ids;
    for (const VertexId from : {vertex, links_.parent(vertex)}) add_live_neighbors(from, ids);
    const auto& sorted = pruner_.look(vertex, ids).candidates;
    ids.resize(sorted.size());
    std::transform(sorted.begin(), sorted.end(), ids.begin(), [](auto one) { return one.id(); });
    return ids;
  }

  // Whether a vertex may have one more child that is a copy, or that is not. Dead children leave.
  bool has_room(VertexId host, bool for_copy) const {
    const VertexId* const list = links_.row(host);
    std::size_t n_copies = 0, n_others = 0;
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      if (links_.is_child(list[i], host) && is_live(list[i])) {
        ++(links_.is_copy(list[i]) ? n_copies : n_others);
      }
    }
    const bool is_below =
        for_copy ? n_copies < links_.max_copies(host) : n_others < links_.max_children();
    return is_below && n_copies + n_others < links_.width;
  }

  // Makes a vertex a child of a host that has room.
  void settle(VertexId vertex, VertexId host) const {
    if (links_.n_children(host) < links_.width) return links_.adopt(host, vertex);
    VertexId* const list = links_.row(host);
    const auto is_dead = [this](VertexId id) { return !is_live(id); };
    const auto* place = std::find_if(list, list + links_.width, is_dead);
    links_.set_parent(vertex, host);
    links_.set(host, static_cast<std::size_t>(place - list), vertex);
  }

  // Whether a host is known not to descend from the vertex.
  bool is_apart(VertexId host, VertexId vertex) const {
    for (std::size_t steps = 0; steps < kMaxDepth; ++steps) {
      if (host < 0) return true;
      if (host == vertex) return false;
      host = links_.parent(host);
    }
    return false;
  }

  // A live entry without a parent that is not this vertex, or -1.
  VertexId root_besides(VertexId vertex) const {
    for (std::size_t i = 0; i < n_entries_; ++i) {
      const VertexId entry = entries_[i];
      if (entry >= 0 && entry != vertex && is_live(entry) && links_.parent(entry) < 0) return entry;
    }
    return kNone;
  }

  // The vertex itself if it has room for a child that is a copy, or that is not; otherwise the
  // nearest descendant that has, by live children of that kind.
  VertexId with_room(VertexId vertex, bool for_copy) const {
    std::vector<VertexId> queue{vertex};
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const VertexId host = queue[at];
      if (has_room(host, for_copy)) return host;
      const VertexId* const list = links_.row(host);
      for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
        const bool leads_on = links_.is_child(list[i], host) && is_live(list[i]);
        if (leads_on && links_.is_copy(list[i]) == for_copy) queue.push_back(list[i]);
      }
    }
    throw std::logic_error("expected a tree with leaves");
  }

  // Dead entries give way to a live neighbour, or to nothing.
  void replace_entries() const {
    std::vector<VertexId> live;
    for (std::size_t i = 0; i < n_entries_; ++i) {
      VertexId entry = entries_[i];
      if (entry >= 0 && !is_live(entry)) entry = live_neighbor(entry);
      const bool is_new = entry >= 0 && std::find(live.begin(), live.end(), entry) == live.end();
      if (is_new) live.push_back(entry);
    }
    for (std::size_t i = 0; i < n_entries_; ++i) {
      store_id(entries_ + i, i < live.size() ? live[i] : kNone);
    }
  }

  VertexId live_neighbor(VertexId vertex) const {
    const VertexId* const list = links_.row(vertex);
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      if (is_live(list[i])) return list[i];
    }
    return kNone;
  }

  // Replaces the dead neighbours of a vertex.
  void mend(VertexId vertex) const {
    const VertexId* const list = links_.row(vertex);
    std::vector<VertexId> kept, dead;
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      if (list[i] != vertex) (is_live(list[i]) ? kept : dead).push_back(list[i]);
    }
    std::vector<VertexId> ids = kept;
    std::size_t most = kept.size();
    for (const VertexId gone : dead) most += add_substitutes(vertex, gone, ids);
    Closeup& closeup = pruner_.look(vertex, ids);
    std::vector<VertexId> chosen(ids.size());
    const auto is_kept = [&](VertexId id) {
      return std::find(kept.begin(), kept.end(), id) != kept.end();
    };
    const std::size_t n =
        closeup.choose(pruner_.alpha(), std::min(most, links_.width), is_kept, chosen.data());
    links_.replace(vertex, chosen.data(), n);
  }

  void add_live_neighbors(VertexId vertex, std::vector<VertexId>& near) const {
    const VertexId* const list = links_.row(vertex);
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      if (is_live(list[i]) && !links_.is_copy(list[i])) near.push_back(list[i]);
    }
  }

  // Adds the nearest neighbours of a dead vertex to the candidates, and returns how many of them
  // may take its place. Dead neighbours are looked through. A vertex that equals the dead one takes
  // over its whole list.
  std::size_t add_substitutes(VertexId vertex, VertexId gone, std::vector<VertexId>& ids) const {
    std::vector<VertexId> near{gone};
    add_live_neighbors(gone, near);
    const VertexId* const list = links_.row(gone);
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      if (!is_live(list[i])) add_live_neighbors(list[i], near);
    }
    const auto& sorted = pruner_.look(vertex, near).candidates;
    const bool is_equal = !sorted.empty() && sorted.front().distance() == 0;
    const std::size_t n_most = is_equal ? links_.width : kConsidered;
    std::size_t n = 0;
    for (std::size_t i = 0; i < sorted.size() && n < n_most; ++i) {
      if (sorted[i].id() == gone) continue;
      ids.push_back(sorted[i].id());
      ++n;
    }
    return is_equal ? links_.width : kSubstitutes;
  }

  const Links& links_;
  const std::int64_t* labels_;
  VertexId* entries_;
  const std::size_t n_entries_;
  const Pruner& pruner_;
};

}  // namespace l2route
