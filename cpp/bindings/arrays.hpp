// numpy arrays as the core reads and returns them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
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
#include <utility>
#include <vector>

#include "types.hpp"

namespace l2route {

namespace nb = nanobind;

template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using MutableMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using MutableArray = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using OptionalArray = std::optional<Array<T>>;
template <class T>
using OptionalMatrix = std::optional<Matrix<T>>;
template <class T>
using Output = nb::ndarray<nb::numpy, T>;

// Rows of any element type that there are kernels for.
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline constexpr std::align_val_t kAlignment{kCacheLine};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("expected " + what);
}

// Bytes of an array of this shape; throws if they overflow a size.
inline std::size_t byte_count(const std::vector<std::size_t>& shape, std::size_t element_size) {
  std::size_t n_bytes = element_size;
  for (const std::size_t extent : shape) {
    require(!__builtin_mul_overflow(n_bytes, extent, &n_bytes), "arrays of fewer than 2^64 bytes");
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

// A numpy array with a copy of these values.
template <class T>
Output<T> copied(const std::vector<T>& values) {
  auto [pointer, array] = new_array<T>({values.size()});
  std::copy(values.begin(), values.end(), pointer);
  return array;
}

// Offsets [n + 1] of parts that follow one another: part i is [offsets[i], offsets[i + 1]).
template <class Parts, class SizeOf>
std::vector<std::int64_t> offsets_of(const Parts& parts, const SizeOf& size_of) {
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(parts.size() + 1);
  for (const auto& part : parts) {
    offsets.push_back(offsets.back() + static_cast<std::int64_t>(size_of(part)));
  }
  return offsets;
}

// A numpy array of the values of all parts, one part after the other.
template <class T, class Parts, class ValuesOf>
Output<T> joined(const Parts& parts, std::int64_t n_values, const ValuesOf& values_of) {
  auto [pointer, array] = new_array<T>({static_cast<std::size_t>(n_values)});
  T* end = pointer;
  for (const auto& part : parts) {
    const std::vector<T>& values = values_of(part);
    end = std::copy(values.begin(), values.end(), end);
  }
  return array;
}

}  // namespace l2route
