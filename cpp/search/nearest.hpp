// The nearest of vertices that are scored in blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "search/frontier.hpp"
#include "types.hpp"

namespace l2route {

// Keeps the `kept` best of all that were added. Most vertices are compared with one score, a bound
// on that of the worst one kept, and nothing else.
class Nearest {
 public:
  void reset(std::size_t kept) {
    kept_ = kept;
    bound_ = kept == 0 ? -kFarthest : kFarthest;
    keys_.clear();
  }

  void add(const VertexId* ids, const float* scores, std::size_t n) {
    if (keys_.empty() && bound_ == kFarthest) bound_ = first_bound(scores, n);
    for (std::size_t first = 0; first < n; first += 64) {
      const std::size_t n_here = std::min<std::size_t>(n - first, 64);
      for (std::uint64_t near = not_beyond(scores + first, n_here); near != 0; near &= near - 1) {
        const std::size_t i = first + static_cast<std::size_t>(std::countr_zero(near));
        keys_.push_back(make_key(scores[i], ids[i]));
      }
    }
    if (keys_.size() >= kept_ + std::max(kept_, kFew)) forget();
  }

  // The best, ascending.
  std::vector<Key>& best() {
    if (keys_.size() > std::max(kept_, 2 * kFew)) forget();
    std::sort(keys_.begin(), keys_.end());
    keys_.resize(std::min(keys_.size(), kept_));
    return keys_;
  }

 private:
  static constexpr std::size_t kFew = 16;  // not worth a partition before they are sorted
  static constexpr float kFarthest = std::numeric_limits<float>::infinity();

  // Bit i says whether scores[i] is not beyond the bound, for i < n ≤ 64.
  std::uint64_t not_beyond(const float* scores, std::size_t n) const {
    std::uint64_t bits = 0;
    std::size_t i = 0;
#if defined(__x86_64__)
    const __m128 bound = _mm_set1_ps(bound_);
    for (; i + 4 <= n; i += 4) {
      const int beyond = _mm_movemask_ps(_mm_cmpgt_ps(_mm_loadu_ps(scores + i), bound));
      bits |= static_cast<std::uint64_t>(beyond ^ 15) << i;
    }
#endif
    for (; i < n; ++i) bits |= static_cast<std::uint64_t>(!(scores[i] > bound_)) << i;
    return bits;
  }

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
