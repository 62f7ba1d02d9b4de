#include "core/state.h"

#include <functional>
#include <numeric>

namespace RPU {
namespace {

std::string describeShape(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

const char *typeName(Tensor::Type type) {
  static constexpr const char *kNames[] = {"float32", "float16", "uint8",
                                           "int32",   "int64",   "uint64"};
  return kNames[static_cast<int>(type)];
}

}  // namespace

int64_t Tensor::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

const Tensor &State::get(const std::string &name, Tensor::Type type,
                         const std::vector<int64_t> &shape) const {
  const auto found = tensors.find(name);
  RPU_CHECK(StateError, found != tensors.end(), "the state has no tensor '", name,
            "'; it belongs to another configuration or is incomplete");
  const Tensor &tensor = found->second;
  RPU_CHECK(StateError, tensor.type == type && tensor.shape == shape, "tensor '", name,
            "' of the state is ", typeName(tensor.type), describeShape(tensor.shape), " where ",
            typeName(type), describeShape(shape),
            " is expected; the state belongs to another configuration");
  return tensor;
}

uint64_t State::counter(const std::string &name) const {
  const auto found = values.find(name);
  const int64_t *value = found == values.end() ? nullptr : found->second.integer();
  RPU_CHECK(StateError, value && *value >= 0, "the state has no count '", name,
            "'; it is incomplete or was made by another version");
  return static_cast<uint64_t>(*value);
}

}  // namespace RPU
