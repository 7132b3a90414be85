// `_core.StopRule`: a learned stopping rule that owns its arrays.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "search/stopping.hpp"

namespace l2route {

class PyStopRule {
 public:
  PyStopRule(std::vector<float> factors, std::vector<float> centre, std::vector<float> scale,
             std::vector<float> weights, float threshold, std::size_t first)
      : factors_(std::move(factors)),
        centre_(std::move(centre)),
        scale_(std::move(scale)),
        weights_(std::move(weights)) {
    require(first < factors_.size(), "a first level of the rule");
    require(centre_.size() == kStopFeatures && scale_.size() == kStopFeatures,
            "a centre and a scale per feature");
    require(weights_.size() == kStopTerms, "a weight per term");
    rule_ = {factors_.data(), factors_.size(), first,    centre_.data(),
             scale_.data(),   weights_.data(), threshold};
  }
  PyStopRule(const PyStopRule&) = delete;  // the rule refers to its members
  PyStopRule& operator=(const PyStopRule&) = delete;

  const StopRule& rule() const { return rule_; }

 private:
  const std::vector<float> factors_, centre_, scale_, weights_;
  StopRule rule_;
};

}  // namespace l2route
