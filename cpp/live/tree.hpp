// A tree of edges that reaches every vertex of a graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "live/links.hpp"
#include "search/graph.hpp"
#include "threads/pulse.hpp"

namespace l2route {

// Chooses a parent for every vertex: one that lists it and is a step nearer to the entries, among
// those the one with the fewest children. The first entry is a root; another entry is one only if
// the first does not reach it. Returns the number of vertices that no entry reaches, those with
// label -1 not counted.
inline std::size_t choose_parents(const GraphView& graph, const std::int64_t* labels,
                                  VertexId* parents, Pulse& pulse) {
  constexpr std::int32_t kUnseen = std::numeric_limits<std::int32_t>::max();
  const Adjacency& lists = graph.bottom;
  std::vector<std::int32_t> levels(lists.n, kUnseen);
  std::vector<std::uint32_t> n_children(lists.n, 0);
  std::vector<VertexId> order;
  order.reserve(lists.n);
  const auto level_of = [&](VertexId v) -> std::int32_t& {
    return levels[static_cast<std::size_t>(v)];
  };
  const auto children_of = [&](VertexId v) -> std::uint32_t& {
    return n_children[static_cast<std::size_t>(v)];
  };
  std::fill(parents, parents + lists.n, kNone);
  std::size_t done = 0;
  for (std::size_t entry = 0; entry < graph.n_entries; ++entry) {
    const VertexId root = graph.entries[entry];
    if (level_of(root) != kUnseen) continue;
    level_of(root) = 0;
    order.push_back(root);
    for (; done < order.size(); ++done) {
      if (done % kVerticesPerBeat == 0) pulse.beat();
      const VertexId vertex = order[done];
      const VertexId* const list = lists.row(static_cast<std::size_t>(vertex));
      for (std::size_t i = 0; i < lists.width && list[i] >= 0; ++i) {
        const VertexId to = list[i];
        VertexId& parent = parents[static_cast<std::size_t>(to)];
        if (level_of(to) == kUnseen) {
          level_of(to) = level_of(vertex) + 1;
          order.push_back(to);
        } else if (parent < 0 || parent == vertex || level_of(to) != level_of(vertex) + 1 ||
                   children_of(parent) <= children_of(vertex) + 1) {
          continue;
        } else {
          --children_of(parent);
        }
        parent = vertex;
        ++children_of(vertex);
      }
    }
  }
  std::size_t n_unreached = 0;
  for (std::size_t v = 0; v < lists.n; ++v) {
    n_unreached += levels[v] == kUnseen && (labels == nullptr || labels[v] != -1);
  }
  return n_unreached;
}

// Leaves room for one more child in every list: where all neighbours of a vertex are its children,
// one of them becomes a child of another vertex below it. A copy stays below a vertex it equals.
inline void relieve(const Links& links, std::size_t n_slots) {
  const auto has_room = [&](VertexId host) { return links.n_children(host) + 1 < links.width; };
  for (std::size_t v = 0; v < n_slots; ++v) {
    const auto vertex = static_cast<VertexId>(v);
    if (links.n_children(vertex) < links.width) continue;
    const VertexId* const children = links.row(vertex);
    const VertexId* const end = children + links.width;
    const auto* found =
        std::find_if_not(children, end, [&](VertexId c) { return links.is_copy(c); });
    const VertexId moved = found == end ? end[-1] : *found;
    std::vector<VertexId> queue{vertex};
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const VertexId host = queue[at];
      if (has_room(host)) {
        links.adopt(host, moved);
        break;
      }
      const VertexId* const list = links.row(host);
      for (std::size_t i = 0; i < links.width && list[i] >= 0; ++i) {
        const bool leads_on = links.is_child(list[i], host) && list[i] != moved;
        if (leads_on && (!links.is_copy(moved) || links.is_copy(list[i]))) queue.push_back(list[i]);
      }
    }
  }
}

}  // namespace l2route
