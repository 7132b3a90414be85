// `_core.Rows`: padded vectors with their kernels, which keep their arrays alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "kernels/rows.hpp"

namespace l2route {

inline ScoreKind score_kind(const std::string& name) {
  if (name == "l2") return ScoreKind::l2;
  if (name == "ip") return ScoreKind::inner_product;
  throw std::invalid_argument("expected scorer 'l2' or 'ip', got '" + name + "'");
}

inline Element element_of(const AnyMatrix& matrix, std::size_t code_bits) {
  constexpr nb::dlpack::dtype half{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  if (matrix.dtype() == nb::dtype<float>()) return Element::single;
  if (matrix.dtype() == half) return Element::half;
  if (matrix.dtype() == nb::dtype<std::uint8_t>()) {
    require(code_bits == 2 || code_bits == 4 || code_bits == 8, "codes of 2, 4 or 8 bits");
    return code_bits == 2   ? Element::quarter_code
           : code_bits == 4 ? Element::half_code
                            : Element::code;
  }
  throw std::invalid_argument("expected rows of float32, float16 or uint8");
}

inline std::size_t padded(std::size_t dim, Element element = Element::single) {
  const std::size_t lanes = row_lanes(element);
  return (dim + lanes - 1) / lanes * lanes;
}

class PyRows {
 public:
  PyRows(AnyMatrix matrix, const std::string& scorer, OptionalArray<float> bias,
         std::size_t code_bits, OptionalArray<float> offset, OptionalArray<float> scale,
         std::shared_ptr<const PyRows> near, const std::string& simd)
      : matrix_(std::move(matrix)),
        bias_(std::move(bias)),
        offset_(std::move(offset)),
        scale_(std::move(scale)),
        near_(std::move(near)) {
    const Element element = element_of(matrix_, code_bits);
    const std::size_t width = matrix_.shape(1) * (is_code(element) ? 8 / code_bits : 1);
    require(padded(width, element) == width,
            "rows padded to a multiple of 16 elements, or of 64 bytes of codes, got " +
                std::to_string(matrix_.shape(1)));
    const ScoreKind kind = score_kind(scorer);
    require(!is_code(element) || kind == ScoreKind::inner_product, "codes scored by 'ip'");
    view_ = make_rows(matrix_.data(), matrix_.shape(0), width, element, kind, simd);
    require(!bias_ || bias_->shape(0) == view_.n, "as many biases as rows");
    if (bias_) view_.bias = bias_->data();
    set_codes();
    set_near();
  }
  PyRows(const PyRows&) = delete;  // others point to its view
  PyRows& operator=(const PyRows&) = delete;

  const Rows& view() const { return view_; }

  Output<float> scores(const Array<float>& query) const {
    require(query.shape(0) == view_.width, "a query padded like the rows");
    std::vector<VertexId> ids(view_.n);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<std::int8_t> codes;
    auto [scores, array] = new_array<float>({view_.n});
    Scorer(view_, query.data(), &codes).score(ids.data(), view_.n, scores);
    return array;
  }

  // Scores of rows in any order, prefetched in blocks as those of a walk are.
  Output<float> scores_at(const Array<float>& query, const Array<VertexId>& ids) const {
    require(query.shape(0) == view_.width, "a query padded like the rows");
    const std::size_t n = ids.shape(0);
    for (std::size_t i = 0; i < n; ++i) {
      const VertexId id = ids.data()[i];
      require(id >= 0 && static_cast<std::size_t>(id) < view_.n, "numbers of rows");
    }
    std::vector<std::int8_t> codes;
    auto [scores, array] = new_array<float>({n});
    Scorer scorer(view_, query.data(), &codes);
    const auto prefetch = [&](std::size_t from) {
      for (std::size_t i = from; i < std::min(from + kBlock, n); ++i) view_.prefetch(ids.data()[i]);
    };
    prefetch(0);
    for (std::size_t i = 0; i < n; i += kBlock) {
      prefetch(i + kBlock);
      scorer.score(ids.data() + i, std::min(kBlock, n - i), scores + i);
    }
    return array;
  }

 private:
  static constexpr std::size_t kBlock = 32;

  void set_codes() {
    const bool is_coded = is_code(view_.element);
    require(is_coded == offset_.has_value() && is_coded == scale_.has_value(),
            "an offset and a scale for codes, and for codes alone");
    if (!is_coded) return;
    require(offset_->shape(0) == view_.width && scale_->shape(0) == view_.width,
            "an offset and a scale per element of a row");
    view_.codes = {offset_->data(), scale_->data()};
  }

  void set_near() {
    if (near_ == nullptr) return;
    const Rows& near = near_->view();
    require(near.width == view_.width && near.score == view_.score &&
                (near.bias == nullptr) == (view_.bias == nullptr),
            "neighbours' rows like those of vertices");
    view_.near = &near;
  }

  AnyMatrix matrix_;
  OptionalArray<float> bias_;
  OptionalArray<float> offset_;
  OptionalArray<float> scale_;
  std::shared_ptr<const PyRows> near_;
  Rows view_;
};

}  // namespace l2route
