// Neighbour lists with room for more vertices, changed by one writer while others search them.
//
// Some edges form a tree: `parents[v]` is a vertex that lists v, and the parents' parents lead to a
// root, which is an entry point. So every vertex is reachable, whatever happens to other edges. A
// vertex's children keep their places in its list: a reader in the middle of the list misses none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "search/graph.hpp"
#include "types.hpp"

namespace l2route {

inline constexpr VertexId kNone = -1;

struct Links {
  VertexId* lists = nullptr;  // [capacity, width]; a list ends with its first -1
  std::size_t capacity = 0;
  std::size_t width = 0;
  VertexId* parents = nullptr;      // [capacity]; -1 for roots and for unused rows
  std::uint8_t* copies = nullptr;   // [capacity]; 1 if the vector equals its parent's
  std::uint8_t* changed = nullptr;  // [capacity]; set where a list or a parent changes, unless null

  VertexId* row(VertexId vertex) const { return lists + static_cast<std::size_t>(vertex) * width; }
  VertexId parent(VertexId vertex) const { return parents[static_cast<std::size_t>(vertex)]; }
  void set_parent(VertexId vertex, VertexId to) const {
    parents[static_cast<std::size_t>(vertex)] = to;
    note(vertex);
  }

  // Writes one place of a list, under readers.
  void set(VertexId vertex, std::size_t place, VertexId to) const {
    store_id(row(vertex) + place, to);
    note(vertex);
  }

  bool is_copy(VertexId vertex) const { return copies[static_cast<std::size_t>(vertex)] != 0; }
  void set_copy(VertexId vertex, bool is_copy) const {
    copies[static_cast<std::size_t>(vertex)] = is_copy;
  }

  void note(VertexId vertex) const {
    if (changed != nullptr) changed[static_cast<std::size_t>(vertex)] = 1;
  }

  Adjacency view() const { return {lists, capacity, width}; }

  bool is_child(VertexId vertex, VertexId of) const { return parent(vertex) == of; }

  std::size_t n_children(VertexId vertex) const {
    return n_children(vertex, false) + n_children(vertex, true);
  }

  // Children that are copies, or that are not.
  std::size_t n_children(VertexId vertex, bool are_copies) const {
    const VertexId* list = row(vertex);
    std::size_t n = 0;
    for (std::size_t i = 0; i < width && list[i] >= 0; ++i) {
      n += is_child(list[i], vertex) && is_copy(list[i]) == are_copies;
    }
    return n;
  }

  // Most children of a vertex that are no copies: the rest of its list is for near neighbours.
  std::size_t max_children() const { return std::max<std::size_t>(1, width / 2); }

  // Most children of a vertex that are copies: few, so that a search need not score all copies.
  std::size_t max_copies(VertexId vertex) const {
    constexpr std::size_t kFanOut = 4;
    return is_copy(vertex) ? std::clamp<std::size_t>(width - 1, 1, kFanOut) : 1;
  }

  // Makes a vertex a child of a host: in its list if it is there, at its end, or in the place of
  // the last neighbour that is not a child, of which there has to be one.
  void adopt(VertexId host, VertexId vertex) const {
    const VertexId* const list = row(host);
    std::size_t place = width;
    for (std::size_t i = 0; i < width; ++i) {
      if (list[i] == vertex || list[i] < 0) {
        place = i;
        break;
      }
      if (!is_child(list[i], host)) place = i;
    }
    if (place == width) throw std::logic_error("expected a place for a child");
    set_parent(vertex, host);
    set(host, place, vertex);
  }

  // Replaces a vertex's list by its children, which keep their places, and the other wanted
  // vertices, as many as fit. A place before the last child that nothing is left for holds the
  // vertex itself, which every walk has visited.
  void replace(VertexId vertex, const VertexId* wanted, std::size_t n) const {
    VertexId* const list = row(vertex);
    std::size_t end = 0;  // behind the last child that has a place
    for (std::size_t i = 0; i < width && list[i] >= 0; ++i) {
      if (is_child(list[i], vertex)) end = i + 1;
    }
    const auto has_place = [&](VertexId id) {
      return std::find(list, list + end, id) != list + end;
    };
    std::vector<VertexId> others;
    for (std::size_t i = 0; i < n; ++i) {
      if (!is_child(wanted[i], vertex) || !has_place(wanted[i])) others.push_back(wanted[i]);
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < width; ++i) {
      if (i < end && is_child(list[i], vertex)) continue;
      const VertexId filler = i < end ? vertex : kNone;
      store_id(list + i, next < others.size() ? others[next++] : filler);
    }
    note(vertex);
  }
};

}  // namespace l2route
