// JSON bodies, read by the core.
#include "text/json.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/without_gil.hpp"

namespace l2route {
namespace {

// An array that takes the numbers over.
template <class T>
nb::object array_of(json::Numbers<T>& numbers) {
  auto* values = new std::vector<T>(std::move(numbers.values));
  nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  std::vector<std::size_t> shape{values->size()};
  if (numbers.has_rows) shape = {numbers.n_rows, values->size() / numbers.n_rows};
  return nb::cast(Output<T>(values->data(), shape.size(), shape.data(), owner));
}

nb::tuple json_arrays(const nb::bytes& body, const std::vector<std::string>& floats,
                      const std::vector<std::string>& integers, const std::string& texts,
                      std::size_t most_texts) {
  json::Parser parser(std::string_view(body.c_str(), body.size()), floats, integers, texts,
                      most_texts);
  json::Refused refused{true, ""};
  without_gil([&](Pulse&) {
    try {
      parser.parse();
    } catch (const json::Refused& error) {
      refused = error;
    }
  });
  if (!refused.what.empty()) {
    const std::string message = "expected " + refused.what;
    PyErr_SetString(refused.is_json ? PyExc_ValueError : PyExc_SyntaxError, message.c_str());
    throw nb::python_error();
  }
  nb::dict arrays;
  for (json::Field& field : parser.float_fields_) {
    arrays[field.name.c_str()] = array_of(field.floats);
  }
  for (json::Field& field : parser.integer_fields_) {
    arrays[field.name.c_str()] = array_of(field.integers);
  }
  if (parser.has_texts_) arrays[texts.c_str()] = copied(parser.texts_);
  return nb::make_tuple(nb::bytes(parser.rest_.data(), parser.rest_.size()), arrays);
}

}  // namespace

void bind_json(nb::module_& m) {
  m.def(
      "json_arrays", &json_arrays, nb::arg("body"), nb::arg("floats"), nb::arg("integers"),
      nb::arg("texts"), nb::arg("most_texts"),
      "Read lists of numbers, and one of texts, in an object of JSON into arrays.\n\n"
      "Returns the object without these fields, and arrays by name: float32 for `floats`, int64 "
      "for `integers`; [n, m] for a list of lists, otherwise [n]; for `texts`, of which there may "
      "be `most_texts`, where each begins and ends in the body, with its quotes. Text that is no "
      "JSON is a "
      "SyntaxError, other values in these fields are a ValueError.");
}

}  // namespace l2route
