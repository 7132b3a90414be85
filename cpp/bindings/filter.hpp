// `_core.Filter`: a bitmap that keeps its arrays alive.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "search/filter.hpp"
#include "search/searcher.hpp"
#include "search/ways.hpp"

namespace l2route {

class PyFilter {
 public:
  PyFilter(OptionalArray<std::uint64_t> words, std::size_t n_bits,
           OptionalArray<std::int64_t> labels, std::size_t n_alive)
      : words_(std::move(words)), labels_(std::move(labels)) {
    require(!words_ || words_->shape(0) == (n_bits + 63) / 64, "a word per 64 bits");
    view_.n_bits = n_bits;
    view_.count = n_alive;
    if (labels_) view_.labels = labels_->data();
    const std::size_t n_listed = words_ ? set_words() : n_bits;
    const std::size_t n_sample = std::min(Filter::kMaxSample, n_listed);
    for (std::size_t i = 0; i < n_sample; ++i) {
      sample_.push_back(static_cast<VertexId>((2 * i + 1) * n_listed / (2 * n_sample)));
    }
    if (words_) list();
    view_.sample = sample_.data();
    view_.n_sample = sample_.size();
  }
  PyFilter(const PyFilter&) = delete;  // its view points into it
  PyFilter& operator=(const PyFilter&) = delete;

  const Filter& view() const { return view_; }
  std::size_t count() const { return view_.count; }

 private:
  static constexpr std::size_t kFewShare = 8;  // a list is kept where at most an eighth passes

  // Counts the bits.
  std::size_t set_words() {
    view_.words = words_->data();
    const std::size_t n_words = words_->shape(0), rest = view_.n_bits % 64;
    require(rest == 0 || view_.words[n_words - 1] >> rest == 0, "no bits beyond the last vertex");
    view_.count = 0;
    for (std::size_t i = 0; i < n_words; ++i) {
      view_.count += static_cast<std::size_t>(std::popcount(view_.words[i]));
    }
    return view_.count;
  }

  // Lists the vertices that pass if they are few, and turns the sample's ranks into vertices.
  void list() {
    const bool is_few = view_.count <= view_.n_bits / kFewShare;
    if (is_few) few_.reserve(view_.count);
    std::vector<VertexId> buffer;
    std::size_t n_before = 0, next = 0;
    view_.each_block(view_.n_bits, buffer, [&](const VertexId* ids, std::size_t n) {
      if (is_few) few_.insert(few_.end(), ids, ids + n);
      for (; next < sample_.size() && static_cast<std::size_t>(sample_[next]) < n_before + n;
           ++next) {
        sample_[next] = ids[static_cast<std::size_t>(sample_[next]) - n_before];
      }
      n_before += n;
    });
    if (is_few) view_.few = few_.data();
  }

  OptionalArray<std::uint64_t> words_;
  OptionalArray<std::int64_t> labels_;
  std::vector<VertexId> few_;
  std::vector<VertexId> sample_;
  Filter view_;
};

using PyFilters = std::vector<std::shared_ptr<const PyFilter>>;

// None, one for all queries, or one for each.
inline std::vector<const Filter*> views_of(const PyFilters& filters, std::size_t n_queries,
                                           std::size_t n_vertices) {
  require(filters.size() <= 1 || filters.size() == n_queries,
          "one filter or " + std::to_string(n_queries) + ", one per query, got " +
              std::to_string(filters.size()));
  std::vector<const Filter*> views;
  for (const auto& filter : filters) {
    require(filter != nullptr && filter->view().n_bits <= n_vertices,
            "filters of at most " + std::to_string(n_vertices) + " bits");
    views.push_back(&filter->view());
  }
  return views;
}

// Beam width, rerank, slack and work of walks through what does not pass.
using PySieve = std::optional<std::tuple<std::size_t, std::size_t, float, std::size_t>>;

inline std::optional<SieveLimits> sieve_of(const PySieve& given) {
  if (!given) return {};
  const auto& [beam, rerank, slack, n_work] = *given;
  return SieveLimits{beam, rerank, slack, n_work};
}

inline Way way_of(const std::string& name) {
  if (name == "any") return Way::any;
  if (name == "scan") return Way::scan;
  if (name == "look") return Way::look;
  if (name == "sieve") return Way::sieve;
  throw std::invalid_argument("expected way any, scan, look or sieve, got '" + name + "'");
}

}  // namespace l2route
