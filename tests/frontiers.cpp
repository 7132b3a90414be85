// Both frontiers and the selection of keys behind C functions, for search/test_frontiers.py.
#include <cstddef>
#include <limits>
#include <variant>
#include <vector>

#include "search/frontier.hpp"

using namespace l2route;

using AnyFrontier = std::variant<SortedFrontier, HeapFrontier>;

// The largest key with this score.
static Key limit_of(float score) { return make_key(score, std::numeric_limits<VertexId>::max()); }

static VertexId or_none(std::optional<VertexId> vertex) { return vertex.value_or(-1); }

extern "C" {

AnyFrontier* frontier_new(bool is_heap) {
  return is_heap ? new AnyFrontier(HeapFrontier{}) : new AnyFrontier(SortedFrontier{});
}

void frontier_delete(AnyFrontier* any) { delete any; }

void frontier_reset(AnyFrontier* any, std::size_t capacity) {
  std::visit([&](auto& frontier) { frontier.reset(capacity); }, *any);
}

void frontier_push(AnyFrontier* any, const float* scores, const VertexId* vertices, std::size_t n) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = make_key(scores[i], vertices[i]);
  std::visit([&](auto& frontier) { frontier.push(keys.data(), n); }, *any);
}

// Pushes what is not beyond the worst entry, as walks do.
void frontier_push_near(AnyFrontier* any, const char* level, const float* scores,
                        const VertexId* vertices, std::size_t n) {
  const NearKeys near_keys = near_keys_kernel(level);
  std::vector<Key> keys(n + kKeyRoom);
  std::visit(
      [&](auto& frontier) {
        const Key worst = frontier.worst();
        const float reach =
            worst == kNoLimit ? std::numeric_limits<float>::infinity() : score_of(worst);
        frontier.merge(keys.data(), near_keys(scores, vertices, n, reach, 0, keys.data()));
      },
      *any);
}

// Selects keys; writes the vertices and returns their number.
std::size_t select_near(const char* level, const float* scores, const VertexId* vertices,
                        std::size_t n, float farthest, std::size_t n_any, VertexId* near) {
  std::vector<Key> keys(n + kKeyRoom);
  const std::size_t n_near =
      near_keys_kernel(level)(scores, vertices, n, farthest, n_any, keys.data());
  for (std::size_t i = 0; i < n_near; ++i) near[i] = vertex_of(keys[i]);
  return n_near;
}

VertexId frontier_pop(AnyFrontier* any) {
  return std::visit([](auto& frontier) { return or_none(frontier.pop()); }, *any);
}

VertexId frontier_peek(const AnyFrontier* any) {
  return std::visit([](const auto& frontier) { return or_none(frontier.peek()); }, *any);
}

std::size_t frontier_size(const AnyFrontier* any) {
  return std::visit([](const auto& frontier) { return frontier.size(); }, *any);
}

std::size_t frontier_best(const AnyFrontier* any, std::size_t count, float* scores,
                          VertexId* vertices) {
  std::vector<Key> best;
  std::visit([&](const auto& frontier) { frontier.best(count, best); }, *any);
  for (std::size_t i = 0; i < best.size(); ++i) {
    scores[i] = score_of(best[i]);
    vertices[i] = vertex_of(best[i]);
  }
  return best.size();
}

// Of sorted frontiers only.
VertexId frontier_pop_within(AnyFrontier* any, float limit) {
  return or_none(std::get<SortedFrontier>(*any).pop(limit_of(limit)));
}

void frontier_forget_beyond(AnyFrontier* any, float limit, std::size_t kept) {
  std::get<SortedFrontier>(*any).forget_beyond(limit_of(limit), kept);
}

VertexId frontier_at(const AnyFrontier* any, std::size_t rank) {
  return vertex_of(std::get<SortedFrontier>(*any).at(rank));
}
}
