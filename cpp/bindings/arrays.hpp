// Arrays of numpy's as the core sees them: shapes are checked here, values by the Python layer.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/rows.hpp"
#include "search/graph.hpp"

namespace l2route {

namespace nb = nanobind;

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<nb::numpy, T>;

inline constexpr std::align_val_t kAlignment{kCacheLine};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("expected " + what);
}

// Of an array of so many elements; refused if no size can count them.
inline std::size_t byte_count(const std::vector<std::size_t>& shape, std::size_t element_size) {
  std::size_t n_bytes = element_size;
  for (const std::size_t extent : shape) {
    require(!__builtin_mul_overflow(n_bytes, extent, &n_bytes), "arrays that a memory can hold");
  }
  return n_bytes;
}

// A numpy array that owns its memory and starts on a cache line.
template <class T>
std::pair<T*, Output<T>> new_array(const std::vector<std::size_t>& shape) {
  T* pointer = static_cast<T*>(::operator new(byte_count(shape, sizeof(T)), kAlignment));
  nb::capsule owner(pointer, [](void* p) noexcept { ::operator delete(p, kAlignment); });
  return {pointer, Output<T>(pointer, shape.size(), shape.data(), owner)};
}

inline ScoreKind score_kind(const std::string& name) {
  if (name == "l2") return ScoreKind::l2;
  if (name == "ip") return ScoreKind::inner_product;
  throw std::invalid_argument("expected scorer 'l2' or 'ip', got '" + name + "'");
}

// Rows of any of the elements that there are kernels for.
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline Element element_of(const AnyMatrix& matrix, std::size_t code_bits) {
  constexpr nb::dlpack::dtype half{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  if (matrix.dtype() == nb::dtype<float>()) return Element::single;
  if (matrix.dtype() == half) return Element::half;
  if (matrix.dtype() == nb::dtype<std::uint8_t>()) {
    require(code_bits == 4 || code_bits == 8, "codes of 4 or 8 bits");
    return code_bits == 4 ? Element::half_code : Element::code;
  }
  throw std::invalid_argument("expected rows of float32, float16 or uint8");
}

inline std::size_t padded(std::size_t dim, Element element = Element::single) {
  const std::size_t lanes = row_lanes(element);
  return (dim + lanes - 1) / lanes * lanes;
}

inline Rows rows_of(const AnyMatrix& matrix, const std::string& scorer, const std::string& simd,
                    std::size_t code_bits = 8) {
  const Element element = element_of(matrix, code_bits);
  const std::size_t width = matrix.shape(1) * (element == Element::half_code ? 2 : 1);
  require(padded(width, element) == width,
          "rows padded to a multiple of 16 elements, or of 64 bytes of codes, got " +
              std::to_string(matrix.shape(1)));
  const ScoreKind kind = score_kind(scorer);
  require(!is_code(element) || kind == ScoreKind::inner_product, "codes scored by 'ip'");
  return make_rows(matrix.data(), matrix.shape(0), width, element, kind, simd);
}

inline Codes codes_of(const Rows& rows, const std::optional<Array<float>>& offset,
                      const std::optional<Array<float>>& scale) {
  const bool is_coded = is_code(rows.element);
  require(is_coded == offset.has_value() && is_coded == scale.has_value(),
          "an offset and a scale for codes, and for codes alone");
  if (!is_coded) return {};
  require(offset->shape(0) == rows.width && scale->shape(0) == rows.width,
          "an offset and a scale per element of a row");
  return {offset->data(), scale->data()};
}

inline Adjacency adjacency_of(const Matrix<std::int32_t>& matrix) {
  return {matrix.data(), matrix.shape(0), matrix.shape(1)};
}

// An upper layer's vertices and their neighbours.
using UpperLayer = std::tuple<Array<std::int32_t>, Matrix<std::int32_t>>;

inline GraphView graph_of(const Matrix<std::int32_t>& neighbors, const Array<std::int32_t>& entries,
                          const std::vector<UpperLayer>& upper) {
  GraphView graph;
  graph.bottom = adjacency_of(neighbors);
  graph.entries = entries.data();
  graph.n_entries = entries.shape(0);
  graph.max_width = std::max(graph.bottom.width, graph.n_entries);
  for (const auto& [vertices, links] : upper) {
    require(vertices.shape(0) == links.shape(0), "a neighbour list per vertex of a layer");
    graph.upper.push_back({vertices.data(), adjacency_of(links)});
    graph.max_width = std::max(graph.max_width, links.shape(1));
  }
  return graph;
}

}  // namespace l2route
