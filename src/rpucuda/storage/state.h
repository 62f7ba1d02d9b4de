#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "parameters/value.h"
#include "storage/host_bytes.h"

namespace pulsora {

/// One named tensor of a state, in host memory, row major.
struct Tensor {
  enum class Type { F32, F16, U8, I32, I64, U64 };
  static constexpr size_t kTypes = 6;
  Type type = Type::F32;
  std::vector<int64_t> shape;
  HostBytes bytes;

  int64_t size() const;
  /// Bytes of so many elements, which `bytes` holds unless the state has shapes alone.
  size_t byteSize() const;
};

/// The name of an element type in files, and the bytes of one element.
struct TensorType {
  const char *name;
  uint64_t bytes;
};
const TensorType &typeOf(Tensor::Type type);

/// Tensors of a state, one after another in a backend's memory, to be sent to another process.
class PackedTensors {
 public:
  /// `memory` holds the final size() floats; nullptr if only the sizes are wanted. take() then
  /// changes nothing.
  explicit PackedTensors(float *memory = nullptr) : to_(memory), from_(memory) {}

  /// Number of floats so far.
  int64_t size() const { return size_; }
  void put(const Context &context, const std::string &name, const void *from, size_t bytes);
  /// Reuses the layout of put() to read the same tensors from another buffer.
  void readFrom(const float *memory) { from_ = memory; }
  void take(const Context &context, const std::string &name, void *to, size_t bytes) const;
  /// Makes take() of buffers free their storage instead, which a take() from memory restores.
  void freeBuffers() { frees_ = true; }
  template <class Element>
  void take(const Context &context, const std::string &name, Buffer<Element> &to) const {
    if (frees_) {
      to.freeStorage(context);
      return;
    }
    if (from_) to.restoreStorage(context);
    take(context, name, to.data(), to.bytes());
  }

 private:
  float *to_;
  const float *from_;
  bool frees_ = false;
  int64_t size_ = 0;
  std::map<std::string, int64_t> begins_;
};

/// Everything an object needs to continue as if it had never stopped: named tensors and a table of
/// settings and counters. Files hold it as safetensors (storage/state_file.h).
///
/// The state of a tile is signed: its values include a checksum of everything else. Readers and
/// loaders of a state verify the checksum, so that damage is found on whatever way the state took.
struct State {
  /// The value that holds the checksum, in 16 hexadecimal digits.
  static constexpr const char *kChecksum = "checksum";

  std::map<std::string, Tensor> tensors;
  Value::Map values;
  /// If not null, put() and take() use this memory instead of `tensors`, and only for tensors that
  /// an update may change.
  PackedTensors *packed = nullptr;
  /// Whether put() enters types and shapes alone, without bytes.
  bool shapesOnly = false;

  /// CRC-64/XZ of everything but the value kChecksum. Numbers have 8 bytes, the lowest first; texts
  /// are their length and their UTF-8 bytes. The order is: the values as one map; the number of
  /// tensors; then, by name, each tensor's name, the name of its type in files, its number of
  /// extents, the extents, its number of bytes, the bytes. A value is a letter and its content: n
  /// for none, b with a number 0 or 1, i with a number, r with a double's bits, t with a text, l
  /// with the number of its elements and the elements, m with the number of its entries and, by
  /// name, each entry's name and value.
  std::string checksum() const;
  /// Enters the checksum; to be called last, and again after an intended change.
  void sign();
  /// Throws StateError if the checksum does not match the content, or is missing from the state of
  /// a tile that had one when it was saved (of version 3 or later).
  void verify() const;
  /// Throws StateError, naming the place, unless every floating-point number is finite.
  void requireFinite() const;

  /// Copies a buffer of `Element` into a tensor of the given type and shape.
  template <class Element>
  void put(const Context &context, const std::string &name, Tensor::Type type,
           std::vector<int64_t> shape, const Buffer<Element> &buffer);
  /// put() for a tensor that never changes after the object's construction.
  template <class Element>
  void putFixed(const Context &context, const std::string &name, Tensor::Type type,
                std::vector<int64_t> shape, const Buffer<Element> &buffer) {
    if (!packed) put(context, name, type, std::move(shape), buffer);
  }
  /// The tensor of that name; StateError unless it has this type and shape.
  const Tensor &get(const std::string &name, Tensor::Type type,
                    const std::vector<int64_t> &shape) const;
  /// Copies a tensor into a buffer of the same size.
  template <class Element>
  void take(const Context &context, const std::string &name, Tensor::Type type,
            const std::vector<int64_t> &shape, Buffer<Element> &buffer) const;
  /// Packs numbers that an object keeps in a backend's memory. False, without effect, if `packed`
  /// is null: the numbers are values then.
  template <class Element>
  bool packs(const Context &context, const std::string &name, const Buffer<Element> &numbers) {
    if (packed) packed->put(context, name, numbers.data(), numbers.bytes());
    return packed != nullptr;
  }
  /// The inverse of packs().
  template <class Element>
  bool unpacks(const Context &context, const std::string &name, Buffer<Element> &numbers) const {
    if (packed) packed->take(context, name, numbers.data(), numbers.bytes());
    return packed != nullptr;
  }
  /// The inverse of putFixed().
  template <class Element>
  void takeFixed(const Context &context, const std::string &name, Tensor::Type type,
                 const std::vector<int64_t> &shape, Buffer<Element> &buffer) const {
    if (!packed) take(context, name, type, shape, buffer);
  }
  /// The integer under `name`; StateError if it is absent, negative or above `most`.
  uint64_t counter(const std::string &name, uint64_t most = INT64_MAX) const;
  /// counter() for an integer that is 0 or 1.
  bool flag(const std::string &name) const { return counter(name, 1) != 0; }
  /// The real number under `name`; StateError if it is absent.
  double number(const std::string &name) const;
};

template <class Element>
void State::put(const Context &context, const std::string &name, Tensor::Type type,
                std::vector<int64_t> shape, const Buffer<Element> &buffer) {
  if (packed) {
    packed->put(context, name, buffer.data(), buffer.bytes());
    return;
  }
  Tensor tensor;
  tensor.type = type;
  tensor.shape = std::move(shape);
  if (!shapesOnly) {
    tensor.bytes.resize(buffer.bytes());
    detail::copyToHost(context, tensor.bytes.data(), buffer.data(), buffer.bytes());
  }
  tensors[name] = std::move(tensor);
}

template <class Element>
void State::take(const Context &context, const std::string &name, Tensor::Type type,
                 const std::vector<int64_t> &shape, Buffer<Element> &buffer) const {
  if (packed) {
    packed->take(context, name, buffer);
    return;
  }
  const Tensor &tensor = get(name, type, shape);
  PULSORA_CHECK(StateError, tensor.bytes.size() == buffer.bytes(), "tensor '", name, "' has ",
                tensor.bytes.size(), " bytes where ", buffer.bytes(),
                " are expected; the state belongs to another configuration");
  detail::copyFromHost(context, buffer.data(), tensor.bytes.data(), buffer.bytes());
}

}  // namespace pulsora
