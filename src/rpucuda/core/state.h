#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "core/value.h"

namespace RPU {

/// One named tensor of a state, in host memory, row major.
struct Tensor {
  enum class Type { F32, F16, U8, I32, I64, U64 };
  Type type = Type::F32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t size() const;
};

/// Everything an object needs to continue as if it had never stopped: named tensors and a table of
/// settings and counters. The Python package stores it as a safetensors file.
struct State {
  std::map<std::string, Tensor> tensors;
  Value::Map values;

  /// Copies a buffer of `Element` into a tensor of the given type and shape.
  template <class Element>
  void put(const Context &context, const std::string &name, Tensor::Type type,
           std::vector<int64_t> shape, const Buffer<Element> &buffer);
  /// The tensor of that name; StateError unless it has this type and shape.
  const Tensor &get(const std::string &name, Tensor::Type type,
                    const std::vector<int64_t> &shape) const;
  /// Copies a tensor into a buffer of the same size.
  template <class Element>
  void take(const Context &context, const std::string &name, Tensor::Type type,
            const std::vector<int64_t> &shape, Buffer<Element> &buffer) const;
  /// The integer under `name`; StateError if it is absent or negative.
  uint64_t counter(const std::string &name) const;
};

template <class Element>
void State::put(const Context &context, const std::string &name, Tensor::Type type,
                std::vector<int64_t> shape, const Buffer<Element> &buffer) {
  Tensor tensor;
  tensor.type = type;
  tensor.shape = std::move(shape);
  tensor.bytes.resize(buffer.bytes());
  detail::copyToHost(context, tensor.bytes.data(), buffer.data(), buffer.bytes());
  tensors[name] = std::move(tensor);
}

template <class Element>
void State::take(const Context &context, const std::string &name, Tensor::Type type,
                 const std::vector<int64_t> &shape, Buffer<Element> &buffer) const {
  const Tensor &tensor = get(name, type, shape);
  RPU_CHECK(StateError, tensor.bytes.size() == buffer.bytes(), "tensor '", name, "' has ",
            tensor.bytes.size(), " bytes where ", buffer.bytes(),
            " are expected; the state belongs to another configuration");
  detail::copyFromHost(context, buffer.data(), tensor.bytes.data(), buffer.bytes());
}

}  // namespace RPU
