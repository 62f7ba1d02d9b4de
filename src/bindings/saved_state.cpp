#include "saved_state.h"

#include <array>
#include <cstddef>
#include <memory>
#include <pybind11/numpy.h>
#include <utility>
#include <vector>

#include "storage/atomic_write.h"
#include "storage/json.h"
#include "storage/state_file.h"
#include "value.h"

namespace pulsora::bindings {
namespace {

struct TypeEntry {
  Tensor::Type type;
  const char *numpy;
};
constexpr std::array<TypeEntry, 6> kTypes = {{{Tensor::Type::F32, "float32"},
                                              {Tensor::Type::F16, "float16"},
                                              {Tensor::Type::U8, "uint8"},
                                              {Tensor::Type::I32, "int32"},
                                              {Tensor::Type::I64, "int64"},
                                              {Tensor::Type::U64, "uint64"}}};

// An array that owns the memory of the tensor: states of large models are not copied.
py::array fromTensor(Tensor &&tensor) {
  for (const TypeEntry &entry : kTypes) {
    if (entry.type != tensor.type) continue;
    auto bytes = std::make_unique<HostBytes>(std::move(tensor.bytes));
    void *const data = bytes->data();
    const py::capsule owner(bytes.get(), [](void *held) { delete static_cast<HostBytes *>(held); });
    static_cast<void>(bytes.release());
    return py::array(py::dtype(entry.numpy), tensor.shape, data, owner);
  }
  throw StateError("a tensor has a type that cannot be saved");
}

std::string nameOf(py::handle tensor) {
  PULSORA_CHECK(StateError, PyUnicode_Check(tensor.ptr()), "a tensor of the state is named by a ",
                Py_TYPE(tensor.ptr())->tp_name, "; names are text");
  try {
    return *toValue(tensor, "the name of a tensor").text();
  } catch (const ConfigError &error) {
    throw StateError(error.what());
  }
}

Tensor toTensor(py::handle object, const std::string &name) {
  PULSORA_CHECK(StateError, py::isinstance<py::array>(object), "tensor '", name,
                "' of the state is no NumPy array");
  const auto array = py::array::ensure(object, py::array::c_style);
  const std::string dtype = py::str(array.dtype());
  for (const TypeEntry &entry : kTypes) {
    if (dtype != entry.numpy) continue;
    Tensor tensor;
    tensor.type = entry.type;
    tensor.shape.assign(array.shape(), array.shape() + array.ndim());
    const auto *bytes = static_cast<const std::byte *>(array.data());
    tensor.bytes.assign(bytes, bytes + array.nbytes());
    return tensor;
  }
  throw StateError(message("tensor '", name, "' of the state has dtype ", dtype,
                           ", which no array of a tile has"));
}

}  // namespace

py::tuple fromState(State state) {
  py::dict tensors;
  for (auto &[name, tensor] : state.tensors) tensors[py::str(name)] = fromTensor(std::move(tensor));
  return py::make_tuple(tensors, fromMap(state.values));
}

Value::Map toValues(const py::dict &values) {
  try {
    return *toValue(values, "state").map();
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds what cannot be saved: ", error.what()));
  }
}

State toState(const py::dict &tensors, const py::dict &values) {
  State state;
  for (const auto &[name, array] : tensors) {
    const std::string text = nameOf(name);
    state.tensors[text] = toTensor(array, text);
  }
  state.values = toValues(values);
  return state;
}

namespace {

/// The bytes of a path, as os.fsencode() gave them.
using Path = py::bytes;

py::tuple parse(const py::bytes &data) {
  const auto bytes = static_cast<std::string_view>(data);
  State state = [&] {
    const py::gil_scoped_release released;
    return parseState(bytes);
  }();
  return fromState(std::move(state));
}

py::tuple load(const Path &path) {
  const std::string name = path;
  State state = [&] {
    const py::gil_scoped_release released;
    return loadState(name);
  }();
  return fromState(std::move(state));
}

void save(const Path &path, const py::dict &tensors, const py::dict &values) {
  const State state = toState(tensors, values);
  const std::string name = path;
  const py::gil_scoped_release released;
  saveState(name, state);
}

void replace(const Path &path, const py::bytes &data) {
  const auto bytes = static_cast<std::string_view>(data);
  const std::string name = path;
  const py::gil_scoped_release released;
  replaceFile(name, {bytes});
}

}  // namespace

void bindSavedState(py::module_ &module) {
  using py::arg;
  module.def("parse_state", &parse, arg("data"),
             "(tensors, values) of the state whose file consists of `data`.");
  module.def(
      "dump_state",
      [](const py::dict &tensors, const py::dict &values) {
        return py::bytes(writeState(toState(tensors, values)));
      },
      arg("tensors"), arg("values"), "The bytes of the file of a state.");
  module.def("load_state", &load, arg("path"), "(tensors, values) of the state in a file.");
  module.def("save_state", &save, arg("path"), arg("tensors"), arg("values"),
             "Writes a state to a file, like replace_file().");
  module.def(
      "state_checksum",
      [](const py::dict &tensors, const py::dict &values) {
        return toState(tensors, values).checksum();
      },
      arg("tensors"), arg("values"), "The checksum that belongs to a state.");
  module.def(
      "parse_values",
      [](const py::bytes &json) {
        const Value value = parseJson(static_cast<std::string_view>(json));
        PULSORA_CHECK(StateError, value.map(), "it is no JSON object");
        return fromMap(*value.map());
      },
      arg("json"), "The values of a state from JSON.");
  module.def(
      "dump_values", [](const py::dict &values) { return writeJson(Value(toValues(values))); },
      arg("values"), "The values of a state as JSON.");
  module.def("replace_file", &replace, arg("path"), arg("data"),
             "Makes `data` the content of a file, or of the file behind a link, atomically. The "
             "path is bytes (os.fsencode).");
}

}  // namespace pulsora::bindings
