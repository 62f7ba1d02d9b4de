#include "saved_state.h"

#include <array>
#include <cstring>
#include <pybind11/numpy.h>

#include "value.h"

namespace RPU::bindings {
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

py::array fromTensor(const Tensor &tensor) {
  for (const TypeEntry &entry : kTypes) {
    if (entry.type != tensor.type) continue;
    py::array array(py::dtype(entry.numpy), tensor.shape);
    std::memcpy(array.mutable_data(), tensor.bytes.data(), tensor.bytes.size());
    return array;
  }
  throw StateError("a tensor has a type that cannot be saved");
}

Tensor toTensor(py::handle object, const std::string &name) {
  RPU_CHECK(StateError, py::isinstance<py::array>(object), "tensor '", name,
            "' of the state is no NumPy array");
  const auto array = py::array::ensure(object, py::array::c_style);
  const std::string dtype = py::str(array.dtype());
  for (const TypeEntry &entry : kTypes) {
    if (dtype != entry.numpy) continue;
    Tensor tensor;
    tensor.type = entry.type;
    tensor.shape.assign(array.shape(), array.shape() + array.ndim());
    tensor.bytes.resize(static_cast<size_t>(array.nbytes()));
    std::memcpy(tensor.bytes.data(), array.data(), tensor.bytes.size());
    return tensor;
  }
  throw StateError(message("tensor '", name, "' of the state has dtype ", dtype,
                           ", which no array of a tile has"));
}

}  // namespace

py::tuple fromState(const State &state) {
  py::dict tensors;
  for (const auto &[name, tensor] : state.tensors) tensors[py::str(name)] = fromTensor(tensor);
  return py::make_tuple(tensors, fromMap(state.values));
}

State toState(const py::dict &tensors, const py::dict &values) {
  State state;
  for (const auto &[name, array] : tensors) {
    const std::string text = py::str(name);
    state.tensors[text] = toTensor(array, text);
  }
  state.values = *toValue(values, "state").map();
  return state;
}

}  // namespace RPU::bindings
