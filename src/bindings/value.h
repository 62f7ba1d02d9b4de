#pragma once

#include <pybind11/pybind11.h>
#include <string>

#include "parameters/field.h"
#include "parameters/value.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A plain Python object as a Value: None, bool, int, float, str, list, tuple, dict with str keys,
/// and the NumPy scalars and arrays of these. ConfigError, with `path` in front, for anything else.
Value toValue(py::handle object, const std::string &path);

/// A Value as a tree of plain Python objects.
py::object fromValue(const Value &value);
py::dict fromMap(const Value::Map &map);

/// A number given as argument `name`, read and checked like a parameter.
template <class T>
T readArgument(py::handle object, const char *name, const Range &range) {
  T out{};
  readField(out, toValue(object, name), range, name, "");
  return out;
}

}  // namespace pulsora::bindings
