// Removal of dead vertices from a graph that others search meanwhile.
//
// First the tree is mended: a child of a dead vertex gets a live parent near it (`adopt`). When no
// reader from before is left, dead vertices are removed from all lists: each gives way to a few of
// its own neighbours (`sweep`), so that the vertices around it stay joined, as in IP-DiskANN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows.hpp"
#include "live/links.hpp"
#include "search/frontier.hpp"
#include "threads/parallel.hpp"

namespace l2route {

// Distances between rows of original vectors: squared, or for inner products their negatives.
class Distances {
 public:
  Distances(const Rows& rows, bool is_metric) : rows_(rows), is_metric_(is_metric) {}

  void score(VertexId from, const VertexId* ids, std::size_t n, float* scores) const {
    const std::size_t at = static_cast<std::size_t>(from) * rows_.width;
    if (rows_.element == Element::single) {
      rows_.score(rows_.floats() + at, rows_.data, rows_.width, ids, n, scores);
    } else {
      thread_local std::vector<float> query;
      query.resize(rows_.width);
      const Half* half = static_cast<const Half*>(rows_.data) + at;
      std::transform(half, half + rows_.width, query.begin(),
                     [](Half value) { return portable::to_float(value); });
      rows_.score(query.data(), rows_.data, rows_.width, ids, n, scores);
    }
    if (is_metric_ && rows_.kind == ScoreKind::inner_product) {
      for (std::size_t i = 0; i < n; ++i) scores[i] = std::max(2 + 2 * scores[i], 0.0f);
    }
  }

  // Whether scores are squared distances, so that those of different vertices can be compared.
  bool is_metric() const { return is_metric_; }

 private:
  const Rows& rows_;
  const bool is_metric_;
};

class Repair {
 public:
  // Neighbours of a dead vertex that take its place in a list.
  static constexpr std::size_t kSubstitutes = 3;

  // `labels` [capacity] are −1 for dead vertices.
  Repair(const Links& links, const std::int64_t* labels, VertexId* entries, std::size_t n_entries,
         const Distances& distances, float alpha)
      : links_(links),
        labels_(labels),
        entries_(entries),
        n_entries_(n_entries),
        distances_(distances),
        alpha_(alpha) {}

  bool is_live(VertexId vertex) const { return labels_[static_cast<std::size_t>(vertex)] != -1; }

  // Gives live parents to the live children of dead vertices, and live vertices to the entries.
  // Lists gain edges and lose none of the tree's.
  void adopt(const std::vector<VertexId>& dead) const {
    for (const VertexId vertex : dead) {
      const VertexId* const list = links_.row(vertex);
      const std::vector<VertexId> known(list, list + links_.width);
      for (const VertexId child : known) {
        if (child < 0) break;
        if (child != vertex && links_.is_child(child, vertex) && is_live(child)) rehouse(child);
      }
    }
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
  static constexpr std::size_t kMaxDepth = 512;  // steps to the root before a host is passed over

  // Finds a live parent for a vertex whose parent is dead.
  void rehouse(VertexId vertex) const {
    for (const VertexId host : hosts(vertex)) {
      if (has_room(host) && is_apart(host, vertex)) return settle(vertex, host);
    }
    VertexId ancestor = links_.parent(vertex);
    while (ancestor >= 0 && !is_live(ancestor)) ancestor = links_.parent(ancestor);
    if (ancestor < 0) ancestor = root_besides(vertex);
    if (ancestor < 0) {  // no other live root: the vertex becomes one
      links_.set_parent(vertex, kNone);
      store_id(entries_, vertex);
      return;
    }
    settle(vertex, with_room(ancestor));
  }

  // Live vertices near a vertex, the nearest first: its neighbours, and those of its parent.
  std::vector<VertexId> hosts(VertexId vertex) const {
    std::vector<VertexId> ids;
    for (const VertexId from : {vertex, links_.parent(vertex)}) {
      const VertexId* const list = links_.row(from);
      for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
        if (is_live(list[i]) && list[i] != vertex) ids.push_back(list[i]);
      }
    }
    return by_distance(vertex, ids);
  }

  std::vector<VertexId> by_distance(VertexId vertex, std::vector<VertexId>& ids) const {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<float> scores(ids.size());
    distances_.score(vertex, ids.data(), ids.size(), scores.data());
    std::vector<Key> keys(ids.size());
    std::transform(scores.begin(), scores.end(), ids.begin(), keys.begin(), make_key);
    std::sort(keys.begin(), keys.end());
    std::transform(keys.begin(), keys.end(), ids.begin(), vertex_of);
    return ids;
  }

  bool has_room(VertexId host) const { return links_.n_children(host) < links_.max_children(); }

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

  // The vertex itself if it has room for a child, otherwise a live descendant that has.
  VertexId with_room(VertexId vertex) const {
    std::vector<VertexId> queue{vertex};
    for (std::size_t at = 0; at < queue.size(); ++at) {
      if (has_room(queue[at])) return queue[at];
      const VertexId* const list = links_.row(queue[at]);
      for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
        if (links_.is_child(list[i], queue[at]) && is_live(list[i])) queue.push_back(list[i]);
      }
    }
    return vertex;  // not reached: the tree has leaves
  }

  // Makes a vertex a child of a host: in its list if it is there, at its end, or in the place of
  // the last neighbour that is not a child.
  void settle(VertexId vertex, VertexId host) const {
    VertexId* const list = links_.row(host);
    std::size_t place = links_.width;
    for (std::size_t i = 0; i < links_.width; ++i) {
      if (list[i] == vertex || list[i] < 0) {
        place = i;
        break;
      }
      if (!links_.is_child(list[i], host)) place = i;
    }
    links_.set_parent(vertex, host);
    links_.set(host, place, vertex);
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
    for (const VertexId gone : dead) substitute(vertex, gone, kept);
    links_.replace(vertex, kept.data(), kept.size());
  }

  // Adds the nearest neighbours of a dead vertex that no kept neighbour covers.
  void substitute(VertexId vertex, VertexId gone, std::vector<VertexId>& kept) const {
    std::vector<VertexId> ids;
    const VertexId* const list = links_.row(gone);
    for (std::size_t i = 0; i < links_.width && list[i] >= 0; ++i) {
      const bool is_new = std::find(kept.begin(), kept.end(), list[i]) == kept.end();
      if (is_live(list[i]) && list[i] != vertex && is_new) ids.push_back(list[i]);
    }
    std::vector<float> scores(ids.size());
    distances_.score(vertex, ids.data(), ids.size(), scores.data());
    std::vector<Key> keys(ids.size());
    std::transform(scores.begin(), scores.end(), ids.begin(), keys.begin(), make_key);
    std::sort(keys.begin(), keys.end());
    float apart = 0;
    distances_.score(vertex, &gone, 1, &apart);
    const bool is_equal = distances_.is_metric() && apart == 0;  // a copy takes over the whole list
    const std::size_t most = is_equal ? links_.width : kSubstitutes;
    std::size_t n = 0;
    for (const Key key : keys) {
      if (n == most || kept.size() == links_.width) return;
      if (is_covered(key, kept)) continue;
      kept.push_back(vertex_of(key));
      ++n;
    }
  }

  bool is_covered(Key candidate, const std::vector<VertexId>& kept) const {
    if (!distances_.is_metric()) return false;
    float scores[256];
    const std::size_t n = std::min<std::size_t>(kept.size(), 256);
    distances_.score(vertex_of(candidate), kept.data(), n, scores);
    return std::any_of(scores, scores + n, [&](float score) {
      return alpha_ * score < score_of(candidate);
    });
  }

  const Links& links_;
  const std::int64_t* labels_;
  VertexId* entries_;
  const std::size_t n_entries_;
  const Distances& distances_;
  const float alpha_;
};

}  // namespace l2route
