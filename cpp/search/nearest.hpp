// The nearest of vertices that are scored in blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "search/frontier.hpp"
#include "types.hpp"

namespace l2route {

// Keeps the `kept` best of all that were added. Most vertices are compared with one score, a bound
// on that of the worst one kept, and nothing else.
class Nearest {
 public:
  static constexpr std::size_t kBlock = 128;  // most vertices added at a time

  void reset(std::size_t kept) {
    kept_ = kept;
    bound_ = kept == 0 ? -kFarthest : kFarthest;
    keys_.clear();
  }

  void add(const VertexId* ids, const float* scores, std::size_t n) {
    if (keys_.empty() && bound_ == kFarthest) bound_ = first_bound(scores, n);
    std::uint8_t near[kBlock];
    std::size_t n_near = 0;
    for (std::size_t i = 0; i < n; ++i) {
      near[n_near] = static_cast<std::uint8_t>(i);
      n_near += !(scores[i] > bound_);
    }
    for (std::size_t i = 0; i < n_near; ++i) {
      keys_.push_back(make_key(scores[near[i]], ids[near[i]]));
    }
    if (keys_.size() >= kept_ + std::max<std::size_t>(kept_, 16)) forget();
  }

  // The best, ascending.
  std::vector<Key>& best() {
    if (keys_.size() > kept_) forget();
    std::sort(keys_.begin(), keys_.end());
    return keys_;
  }

 private:
  static constexpr float kFarthest = std::numeric_limits<float>::infinity();

  void forget() {
    if (kept_ == 0) {
      keys_.clear();
      return;
    }
    const auto worst = keys_.begin() + static_cast<std::ptrdiff_t>(kept_) - 1;
    std::nth_element(keys_.begin(), worst, keys_.end());
    keys_.resize(kept_);
    bound_ = score_of(keys_.back());
  }

  float first_bound(const float* scores, std::size_t n) const {
    if (kept_ <= 12 && n >= 16) return bound_of_lanes<16>(scores, n);
    if (kept_ <= 24 && n >= 32) return bound_of_lanes<32>(scores, n);
    return kFarthest;
  }

  // Each lane has the best of some of the scores, so as many scores as lanes are at most a bound.
  template <std::size_t n_lanes>
  float bound_of_lanes(const float* scores, std::size_t n) const {
    float lanes[n_lanes];
    std::copy_n(scores, n_lanes, lanes);
    for (std::size_t i = n_lanes; i + n_lanes <= n; i += n_lanes) {
      for (std::size_t lane = 0; lane < n_lanes; ++lane) {
        lanes[lane] = std::min(lanes[lane], scores[i + lane]);
      }
    }
    std::int32_t n_below[n_lanes] = {};
    for (const float score : lanes) {
      for (std::size_t lane = 0; lane < n_lanes; ++lane) n_below[lane] += score <= lanes[lane];
    }
    float bound = kFarthest;
    for (std::size_t lane = 0; lane < n_lanes; ++lane) {
      if (n_below[lane] >= static_cast<std::int32_t>(kept_)) bound = std::min(bound, lanes[lane]);
    }
    return bound;
  }

  std::size_t kept_ = 0;
  float bound_ = kFarthest;
  std::vector<Key> keys_;
};

}  // namespace l2route
