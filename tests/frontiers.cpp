// Both frontiers behind C functions, for search/test_frontiers.py.
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
