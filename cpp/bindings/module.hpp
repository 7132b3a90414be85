// The parts of the Python module; each is bound in the file of its name.
#pragma once

#include <nanobind/nanobind.h>

namespace l2route {

void bind_search(nanobind::module_& m);
void bind_stream(nanobind::module_& m);
void bind_build(nanobind::module_& m);
void bind_learn(nanobind::module_& m);
void bind_live(nanobind::module_& m);
void bind_stopping(nanobind::module_& m);
void bind_json(nanobind::module_& m);

}  // namespace l2route
