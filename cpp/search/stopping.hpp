// When a walk ends: by a slack, or by a learned rule that chooses a slack for each query.
//
// A rule has several slacks, ascending: its levels. A walk that has met one of them is described by
// a few numbers, and the rule says whether it goes on to the next.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "search/frontier.hpp"
#include "types.hpp"

namespace l2route {

// Ends a walk when the squared distance of the best vertex not expanded exceeds `factor` times that
// of the k-th best visited. Score + offset is proportional to the squared distance.
struct Slack {
  std::size_t k = 0;     // 0 for no limit
  std::size_t kept = 0;  // number of vertices that are kept at any distance
  float factor = 1;      // of squared distances
  float offset = 0;

  Key limit(Key kth) const { return limit(kth, factor); }

  Key limit(Key kth, float own_factor) const {
    const float score = score_of(kth);
    const float reach = score + (own_factor - 1) * std::max(score + offset, 0.0f);
    return make_key(reach, std::numeric_limits<VertexId>::max());
  }

  // The squared distance of a key, in units of the space; above 0, so that it has a logarithm.
  float distance(Key key) const { return std::max(score_of(key) + offset, 1e-30f); }
};

inline constexpr std::size_t kStopFeatures = 9;
inline constexpr std::size_t kStopTerms = (kStopFeatures + 1) * (kStopFeatures + 2) / 2;
using StopFeatures = std::array<float, kStopFeatures>;

// A learned rule: a polynomial of degree 2 of the features. Arrays belong to Python.
struct StopRule {
  static constexpr float kMostDeviations = 4;  // features are clipped to so many
  static constexpr std::size_t kBeam = 2048;   // beam width of walks

  const float* factors = nullptr;  // of squared distances, by level, ascending
  std::size_t n_levels = 0;
  std::size_t first = 0;           // level that walks begin with
  const float* centre = nullptr;   // of features [kStopFeatures]
  const float* scale = nullptr;    // their standard deviations, above 0
  const float* weights = nullptr;  // 1, each feature, then each product of two [kStopTerms]
  float threshold = 0;             // a walk ends where the polynomial is below

  bool goes_on(const StopFeatures& features) const {
    StopFeatures x;
    for (std::size_t i = 0; i < kStopFeatures; ++i) {
      const float deviation = (features[i] - centre[i]) / scale[i];
      x[i] = std::clamp(deviation, -kMostDeviations, kMostDeviations);
    }
    const float* w = weights;
    float sum = *w++;
    for (std::size_t i = 0; i < kStopFeatures; ++i) sum += *w++ * x[i];
    for (std::size_t i = 0; i < kStopFeatures; ++i) {
      for (std::size_t j = i; j < kStopFeatures; ++j) sum += *w++ * x[i] * x[j];
    }
    return sum >= threshold;
  }
};

// How far a walk by levels has come.
struct Course {
  std::size_t level = 0;
  std::size_t held = 0;  // the frontier holds what is within the slack of this level
  Key kth = kNoLimit;
  Key nearest_first = kNoLimit;   // the nearest when k vertices were first known
  std::size_t n_when_better = 0;  // scores computed when the k best changed last
};

// Numbers that describe a walk that has met a level. Distances enter as ratios, but for the
// logarithm of one, whose mean the rule subtracts. Logarithms of ratios are differences: the ratio
// of a large distance and one of nearly 0 is no float.
template <class Frontier>
StopFeatures describe(const Frontier& frontier, const Slack& slack, const Course& course,
                      std::size_t n_scored, std::size_t n_hops, std::size_t width) {
  const Key kth = frontier.at(slack.k - 1);
  const auto log_distance = [&](Key key) { return std::log(slack.distance(key)); };
  const float log_farthest = log_distance(kth), n = static_cast<float>(n_scored);
  const auto n_within = [&](float factor) {
    return static_cast<float>(frontier.n_within(slack.limit(kth, factor)));
  };
  const float n_per_hop = n / static_cast<float>((n_hops + 1) * width);
  return {(n - static_cast<float>(course.n_when_better)) / n,
          log_farthest - log_distance(frontier.at(0)),
          log_farthest - log_distance(frontier.at(slack.k / 2)),
          std::log(n_within(slack.factor)),
          std::log(n_within(1 + (slack.factor - 1) / 4)),
          log_farthest - log_distance(course.nearest_first),
          n_per_hop,
          log_farthest,
          static_cast<float>(course.level)};
}

// Policies of a walk. With this one it ends by its limits alone.
struct ByLimits {
  static constexpr bool kLearns = false;
};

// With this one it ends at the first level at which the judge says so, or at the last. Vertices
// beyond what the frontier holds are put aside, and come back when a later level reaches them.
template <class Judge>
class ByLevels {
 public:
  static constexpr bool kLearns = true;

  ByLevels(const float* factors, std::size_t n_levels, std::size_t first, const Judge& judge,
           std::vector<Key>& aside)
      : factors_(factors), n_levels_(n_levels), judge_(judge), aside_(aside) {
    course_.level = first;
    course_.held = std::min(first + kAhead, n_levels - 1);
  }

  // Keys up to here are held by the frontier.
  Key held() const { return held_; }

  // Room for n more keys that are put aside, and how many of them were.
  Key* room_aside(std::size_t n) {
    if (aside_.size() < n_aside_ + n) aside_.resize(2 * (n_aside_ + n));
    return aside_.data() + n_aside_;
  }
  void put_aside(std::size_t n) { n_aside_ += n; }

  // Called after each hop, once k vertices are known.
  template <class Frontier>
  void observe(Frontier& frontier, const Slack& slack, std::size_t n_scored) {
    const Key kth = frontier.at(slack.k - 1) | kExpanded;
    if (kth == course_.kth) return;
    if (course_.kth == kNoLimit) course_.nearest_first = frontier.at(0);
    course_.kth = kth;
    course_.n_when_better = n_scored;
    held_ = slack.limit(kth, factors_[course_.held]);
    const std::size_t n_before = frontier.size();
    frontier.forget_beyond(held_, slack.kept);
    const std::size_t n_gone = n_before - frontier.size();
    if (n_gone > 0) std::copy_n(frontier.forgotten(), n_gone, room_aside(n_gone));
    put_aside(n_gone);
  }

  // Whether a walk that has met its slack goes on, and if so sets the next slack.
  template <class Frontier>
  bool goes_on(Frontier& frontier, Slack& slack, std::size_t n_scored, std::size_t n_hops,
               std::size_t width) {
    const StopFeatures features = describe(frontier, slack, course_, n_scored, n_hops, width);
    if (!judge_(features, frontier, course_.level, n_scored)) return false;
    if (course_.level + 1 == n_levels_) return false;
    slack.factor = factors_[++course_.level];
    if (course_.level > course_.held) bring_back(frontier, slack);
    return true;
  }

 private:
  static constexpr std::size_t kAhead = 2;  // levels that the frontier holds beside the present

  template <class Frontier>
  void bring_back(Frontier& frontier, const Slack& slack) {
    course_.held = std::min(course_.level + kAhead, n_levels_ - 1);
    held_ = slack.limit(course_.kth, factors_[course_.held]);
    const auto is_far = [limit = held_](Key key) { return key > limit; };
    Key* const end = aside_.data() + n_aside_;
    Key* const near = std::partition(aside_.data(), end, is_far);
    frontier.restore(near, static_cast<std::size_t>(end - near));
    n_aside_ = static_cast<std::size_t>(near - aside_.data());
  }

  const float* factors_;
  std::size_t n_levels_;
  Judge judge_;
  std::vector<Key>& aside_;  // a buffer, of which the first are in use
  std::size_t n_aside_ = 0;
  Course course_;
  Key held_ = kNoLimit;
};

// Ends a walk where a rule says so.
struct RuleJudge {
  const StopRule* rule;

  template <class Frontier>
  bool operator()(const StopFeatures& features, const Frontier&, std::size_t, std::size_t) const {
    return rule->goes_on(features);
  }
};
using ByRule = ByLevels<RuleJudge>;

// Lets a walk go on to the last level, and records what it was at each of them.
struct StopRecorder {
  float* features;         // [n_levels, kStopFeatures]
  std::int32_t* n_scored;  // [n_levels]
  VertexId* best;          // [n_levels, n_best], −1 where there are fewer
  std::size_t n_best;

  template <class Frontier>
  bool operator()(const StopFeatures& described, const Frontier& frontier, std::size_t level,
                  std::size_t n) const {
    std::copy(described.begin(), described.end(), features + level * kStopFeatures);
    keep(frontier, level, n);
    return true;
  }

  // Records a walk that is over at the levels that it did not meet: there it is what it became.
  template <class Frontier>
  void fill(const Frontier& frontier, std::size_t n_levels, std::size_t n) const {
    for (std::size_t level = 0; level < n_levels; ++level) {
      if (n_scored[level] == 0) keep(frontier, level, n);
    }
  }

 private:
  template <class Frontier>
  void keep(const Frontier& frontier, std::size_t level, std::size_t n) const {
    n_scored[level] = static_cast<std::int32_t>(n);
    for (std::size_t rank = 0; rank < n_best; ++rank) {
      best[level * n_best + rank] = rank < frontier.size() ? vertex_of(frontier.at(rank)) : -1;
    }
  }
};
using ByRecorder = ByLevels<StopRecorder>;

}  // namespace l2route
