// Stochastic walks of the agent, and the gradient of the imitation objective along them.
//
// A vertex's score is s = <f(v), g(q)> + bias. Equation 2 of the paper samples the next vertex to
// expand from the softmax of the scores in the heap; adding Gumbel noise once to every score and
// taking the best does that. The objective (equation 4) is, summed over the steps until the target
// is visited, log P(v in Ref(H)), plus log P(v* in TopK). With the walk fixed its derivative in a
// score is e^s (sum of 1/Zref over the steps at which v was in Ref, less the sum of 1/Z over the
// steps at which v was in the heap): no automatic differentiation.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "learn/hop_bfs.hpp"
#include "search/beam_search.hpp"

namespace l2route {

struct RolloutOptions {
  std::size_t budget = 0;        // scores a walk may compute
  std::size_t k = 1;             // the target should be among the k best at the end
  float temperature = 1;         // of the noise that the walk is sampled with; 0 for greedy walks
  float routing_weight = 1;      // of the sum over steps
  float topk_weight = 1;         // of the last term
  float topk_sharpness = 1;      // multiplies scores in the last term
  bool teacher_forcing = false;  // walk as the oracle does (equation 3) instead of as the agent
  std::uint64_t seed = 0;
};

// The result of one walk: the derivative of the objective in the score of each visited vertex.
struct Lesson {
  std::vector<VertexId> vertices;
  std::vector<float> gradients;
  float routing = 0;  // sum of log P(v in Ref(H))
  float topk = 0;     // log P(v* in TopK); 0 where the target was not visited
  std::int32_t n_steps = 0;
  bool is_found = false;
  bool is_kept = false;  // found, and one of the k best without noise
};

inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Uniform in (0, 1), the same for the same (seed, query, vertex) whatever the threads do.
inline float uniform(std::uint64_t walk_seed, VertexId vertex) {
  const std::uint64_t bits = mix(walk_seed ^ static_cast<std::uint64_t>(vertex));
  // The largest 24-bit number plus a half rounds to 2^24, which would make the noise infinite.
  return std::min((static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f, 0x1.fffffep-1f);
}

class RolloutTracer {
 public:
  RolloutTracer(const RolloutOptions& options, HopBlock hops, std::size_t target,
                std::uint64_t query)
      : options_(options),
        hops_(hops),
        target_(target),
        walk_seed_(mix(mix(options.seed) ^ query)) {}

  [[gnu::always_inline]] void prefetch(VertexId vertex) const {
    __builtin_prefetch(hops_.bits(static_cast<std::size_t>(vertex), target_));
  }

  Key visit(VertexId vertex, float score, std::size_t) {
    const float u = uniform(walk_seed_, vertex);
    const float noise = -std::log(-std::log(u));
    const unsigned hops = hops_.hops(static_cast<std::size_t>(vertex), target_);
    visits_.push_back({vertex, -score, noise, hops, n_steps_, kNever});
    if (options_.teacher_forcing) return make_key(static_cast<float>(hops) + 0.9f * u, vertex);
    return make_key(score - options_.temperature * noise, vertex);
  }

  void descend(VertexId) {}

  void expand(VertexId vertex) {
    expanded_.push_back(vertex);
    ++n_steps_;
  }

  // `place` is a buffer with one element per vertex of the graph; its contents do not matter.
  void teach(std::vector<std::int32_t>& place, Lesson& lesson) {
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      place[static_cast<std::size_t>(visits_[i].vertex)] = static_cast<std::int32_t>(i);
    }
    for (std::size_t step = 0; step < expanded_.size(); ++step) {
      const auto i = place[static_cast<std::size_t>(expanded_[step])];
      visits_[static_cast<std::size_t>(i)].left = step;
    }
    const auto found = std::find_if(visits_.begin(), visits_.end(),
                                    [](const Visit& visit) { return visit.hops == 0; });
    lesson.is_found = found != visits_.end();
    lesson.n_steps = static_cast<std::int32_t>(n_steps_);
    lesson.vertices.resize(visits_.size());
    lesson.gradients.assign(visits_.size(), 0.0f);
    float peak = -std::numeric_limits<float>::infinity();
    float lowest = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      lesson.vertices[i] = visits_[i].vertex;
      peak = std::max(peak, visits_[i].score);
      lowest = std::min(lowest, visits_[i].score);
    }
    const auto target = static_cast<std::size_t>(found - visits_.begin());
    lesson.is_kept = lesson.is_found && n_better_than(visits_[target].score) < options_.k;
    if (peak - lowest <= kFar) {
      teach_by<double>(peak, target, lesson);
    } else {
      teach_by<long double>(peak, target, lesson);  // slower, but e^s does not underflow
    }
  }

 private:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  static constexpr float kFar = 600;  // e^-600 is a double
  // Largest x for which e^-x and its inverse are normal numbers: 686 for double, 11013 where long
  // double has an exponent of 15 bits.
  template <class Real>
  static constexpr Real kFarthest = -Real{std::numeric_limits<Real>::min_exponent} * Real{0.6723};

  struct Visit {
    VertexId vertex;
    float score;  // larger is better
    float noise;
    unsigned hops;        // to the target
    std::size_t entered;  // step before which it entered the heap
    std::size_t left;     // step that expanded it
  };

  std::size_t n_better_than(float score) const {
    return static_cast<std::size_t>(std::count_if(
        visits_.begin(), visits_.end(), [&](const Visit& visit) { return visit.score > score; }));
  }

  template <class Real>
  struct Step {
    Real over_heap;       // 1 / sum of e^s over the heap
    Real over_reference;  // 1 / sum of e^s over Ref(H)
    unsigned nearest;     // hops of Ref(H) to the target
  };

  template <class Real>
  void teach_by(float peak, std::size_t target, Lesson& lesson) {
    std::vector<Real> weights(visits_.size());
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      // Never zero, so that the softmax of a heap is defined whatever its scores are.
      weights[i] = std::exp(std::max<Real>(visits_[i].score - peak, -kFarthest<Real>));
    }
    const std::size_t n_steps = lesson.is_found ? visits_[target].entered : n_steps_;
    lesson.routing = teach_routing(weights, n_steps, lesson.gradients);
    lesson.topk = lesson.is_found ? teach_topk(target, lesson.gradients) : 0.0f;
  }

  template <class Real>
  using ByHops = std::array<Real, kUnreachable + 1>;

  // Scores grow by orders of magnitude as a walk nears its target, so a sum that is the difference
  // of two longer ones would cancel. Here sums only ever grow: most vertices stay in the heap once
  // they are in it, and are summed over as steps go forward, and their gradients as steps go
  // backward. Only the few that are expanded are summed step by step.
  template <class Real>
  float teach_routing(const std::vector<Real>& weights, std::size_t n_steps,
                      std::vector<float>& gradients) {
    std::vector<Step<Real>> steps(n_steps);
    const Real objective = sum_steps(weights, steps);
    spread_gradients(weights, steps, gradients);
    return static_cast<float>(objective);
  }

  bool stays(const Visit& visit, std::size_t n_steps) const { return visit.left >= n_steps; }

  // Sums over the heap at every step; returns the sum of log P(v in Ref(H)).
  template <class Real>
  Real sum_steps(const std::vector<Real>& weights, std::vector<Step<Real>>& steps) {
    ByHops<Real> staying{};
    Real all_staying = 0, objective = 0;
    order_.clear();  // vertices that leave the heap
    for (std::size_t t = 0, i = 0; t < steps.size(); ++t) {
      for (; i < visits_.size() && visits_[i].entered <= t; ++i) {
        if (stays(visits_[i], steps.size())) {
          staying[visits_[i].hops] += weights[i];
          all_staying += weights[i];
        } else {
          order_.push_back(i);
        }
      }
      ByHops<Real> sums = staying;
      Real heap = all_staying;
      for (const std::size_t leaver : order_) {
        if (visits_[leaver].left < t) continue;
        sums[visits_[leaver].hops] += weights[leaver];
        heap += weights[leaver];
      }
      unsigned nearest = 0;
      while (nearest < kUnreachable && sums[nearest] == 0) ++nearest;
      if (nearest == kUnreachable) {
        steps[t] = {0, 0, kUnreachable};
        continue;
      }
      steps[t] = {1 / heap, 1 / sums[nearest], nearest};
      objective += std::log(sums[nearest] / heap);
    }
    return objective;
  }

  // From the last step backward: from_here[h] is the gradient, without the factor e^s, of a vertex
  // h hops from the target that is in the heap from step t to the end.
  template <class Real>
  void spread_gradients(const std::vector<Real>& weights, const std::vector<Step<Real>>& steps,
                        std::vector<float>& gradients) const {
    ByHops<Real> from_here{};
    std::size_t i = visits_.size();
    while (i > 0 && visits_[i - 1].entered >= steps.size()) --i;
    for (std::size_t t = steps.size(); t-- > 0;) {
      for (Real& gradient : from_here) gradient -= steps[t].over_heap;
      from_here[steps[t].nearest] += steps[t].over_reference;
      for (; i > 0 && visits_[i - 1].entered == t; --i) {
        const Visit& visit = visits_[i - 1];
        const Real gradient =
            stays(visit, steps.size()) ? from_here[visit.hops] : gradient_until_left(visit, steps);
        gradients[i - 1] += options_.routing_weight * static_cast<float>(weights[i - 1] * gradient);
      }
    }
  }

  template <class Real>
  static Real gradient_until_left(const Visit& visit, const std::vector<Step<Real>>& steps) {
    Real gradient = 0;
    for (std::size_t step = visit.entered; step <= visit.left; ++step) {
      gradient -= steps[step].over_heap;
      if (steps[step].nearest == visit.hops) gradient += steps[step].over_reference;
    }
    return gradient;
  }

  // Samples k - 1 other vertices without replacement; the term is the log-probability that v* is
  // sampled next.
  float teach_topk(std::size_t target, std::vector<float>& gradients) {
    order_.clear();
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      if (i != target) order_.push_back(i);
    }
    const auto noisy = [&](std::size_t i) {
      return visits_[i].score + options_.temperature * visits_[i].noise;
    };
    const auto n_taken = static_cast<std::ptrdiff_t>(std::min(options_.k - 1, order_.size()));
    std::partial_sort(order_.begin(), order_.begin() + n_taken, order_.end(),
                      [&](std::size_t a, std::size_t b) { return noisy(a) > noisy(b); });
    order_.erase(order_.begin(), order_.begin() + n_taken);
    order_.push_back(target);
    float peak = -std::numeric_limits<float>::infinity();
    for (const std::size_t i : order_) peak = std::max(peak, visits_[i].score);
    const auto exponent = [&](std::size_t i) {
      return static_cast<double>(options_.topk_sharpness) * (visits_[i].score - peak);
    };
    double sum = 0;
    for (const std::size_t i : order_) sum += std::exp(exponent(i));
    const float weight = options_.topk_weight * options_.topk_sharpness;
    for (const std::size_t i : order_) {
      gradients[i] -= weight * static_cast<float>(std::exp(exponent(i)) / sum);
    }
    gradients[target] += weight;
    return static_cast<float>(exponent(target) - std::log(sum));
  }

  const RolloutOptions& options_;
  HopBlock hops_;
  std::size_t target_;
  std::uint64_t walk_seed_;
  std::size_t n_steps_ = 0;
  std::vector<Visit> visits_;
  std::vector<VertexId> expanded_;
  std::vector<std::size_t> order_;
};

}  // namespace l2route
