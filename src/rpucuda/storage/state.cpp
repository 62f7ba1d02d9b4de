#include "storage/state.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/backend.h"
#include "linalg/math_util.h"
#include "storage/checksum.h"

namespace pulsora {
namespace {

// States of tiles have had a checksum since this version.
constexpr int64_t kFirstSignedVersion = 3;

std::string describeShape(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

const char *numpyName(Tensor::Type type) {
  static constexpr std::array<const char *, Tensor::kTypes> kNames = {
      "float32", "float16", "uint8", "int32", "int64", "uint64"};
  return kNames[static_cast<size_t>(type)];
}

/// Adds a state to a checksum, in the order that State::checksum() documents.
class Summary {
 public:
  uint64_t value() const { return sum_.value(); }

  void add(uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
    sum_.add(bytes, sizeof bytes);
  }
  void add(const std::string &text) {
    add(text.size());
    sum_.add(text.data(), text.size());
  }
  void add(const Tensor &tensor) {
    add(std::string(typeOf(tensor.type).name));
    add(tensor.shape.size());
    for (const int64_t extent : tensor.shape) add(static_cast<uint64_t>(extent));
    add(tensor.bytes.size());
    sum_.add(tensor.bytes.data(), tensor.bytes.size());
  }
  void add(const Value &value) {
    if (const bool *truth = value.boolean()) {
      add('b', uint64_t{*truth});
    } else if (const int64_t *whole = value.integer()) {
      add('i', static_cast<uint64_t>(*whole));
    } else if (const double *real = value.real()) {
      uint64_t bits = 0;
      std::memcpy(&bits, real, sizeof bits);
      add('r', bits);
    } else if (const std::string *text = value.text()) {
      letter('t');
      add(*text);
    } else if (const Value::List *list = value.list()) {
      add('l', list->size());
      for (const Value &entry : *list) add(entry);
    } else if (const Value::Map *map = value.map()) {
      add('m', map->size());
      for (const auto &[name, entry] : *map) {
        add(name);
        add(entry);
      }
    } else {
      letter('n');
    }
  }

 private:
  void letter(char which) { sum_.add(&which, 1); }
  void add(char which, uint64_t number) {
    letter(which);
    add(number);
  }

  Crc64 sum_;
};

/// The first element with all bits of `exponent` set, which is not finite; -1 without one.
template <class Word>
int64_t firstNotFinite(const HostBytes &bytes, Word exponent) {
  const auto isBad = [&](int64_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + static_cast<size_t>(i) * sizeof word, sizeof word);
    return (word & exponent) == exponent;
  };
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(Word));
  std::atomic<bool> isAnyBad{false};
  parallelRange(Context{}, count, kStepsPerThread, [&](int64_t begin, int64_t end) {
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= isBad(i);
    if (bad) isAnyBad = true;
  });
  int64_t i = 0;
  while (isAnyBad && !isBad(i)) ++i;
  return isAnyBad ? i : -1;
}

int64_t firstNotFinite(const Tensor &tensor) {
  if (tensor.type == Tensor::Type::F32) return firstNotFinite<uint32_t>(tensor.bytes, 0x7F800000U);
  if (tensor.type == Tensor::Type::F16) return firstNotFinite<uint16_t>(tensor.bytes, 0x7C00U);
  return -1;
}

}  // namespace

void PackedTensors::put(const Context &context, const std::string &name, const void *from,
                        size_t bytes) {
  PULSORA_CHECK(StateError, bytes % sizeof(float) == 0, "tensor '", name, "' has ", bytes,
                " bytes, but what goes to another process is made of four at a time");
  const auto floats = static_cast<int64_t>(bytes / sizeof(float));
  begins_[name] = size_;
  if (to_)
    copy(context, rowMajor(static_cast<const float *>(from), 1, floats),
         rowMajor(to_ + size_, 1, floats));
  size_ += floats;
}

void PackedTensors::take(const Context &context, const std::string &name, void *to,
                         size_t bytes) const {
  if (!from_) return;
  const auto floats = static_cast<int64_t>(bytes / sizeof(float));
  copy(context, rowMajor(from_ + begins_.at(name), 1, floats),
       rowMajor(static_cast<float *>(to), 1, floats));
}

const TensorType &typeOf(Tensor::Type type) {
  static constexpr std::array<TensorType, Tensor::kTypes> kTypes = {
      {{"F32", 4}, {"F16", 2}, {"U8", 1}, {"I32", 4}, {"I64", 8}, {"U64", 8}}};
  return kTypes[static_cast<size_t>(type)];
}

int64_t Tensor::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

size_t Tensor::byteSize() const { return static_cast<size_t>(size()) * typeOf(type).bytes; }

std::string State::checksum() const {
  Value::Map rest = values;
  rest.erase(kChecksum);
  Summary summary;
  summary.add(Value(std::move(rest)));
  summary.add(tensors.size());
  for (const auto &[name, tensor] : tensors) {
    summary.add(name);
    summary.add(tensor);
  }
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4)
    digits += "0123456789abcdef"[(summary.value() >> shift) & 0xFU];
  return digits;
}

void State::sign() { values[kChecksum] = Value(checksum()); }

void State::verify() const {
  const auto saved = values.find(kChecksum);
  if (saved == values.end()) {
    const auto version = values.find("version");
    const int64_t *number = version == values.end() ? nullptr : version->second.integer();
    PULSORA_CHECK(StateError, !number || *number < kFirstSignedVersion, "the state is of version ",
                  number ? *number : 0, " but has no value '", kChecksum,
                  "'; it is damaged or incomplete");
    return;
  }
  const std::string expected = checksum();
  PULSORA_CHECK(StateError, saved->second.text() && *saved->second.text() == expected,
                "the state is not what was saved: its checksum is ", saved->second.describe(),
                ", but that of its content is '", expected,
                "'. It was damaged, or changed; a change that is meant has to be signed "
                "(State.signed() in Python, State::sign() in C++)");
}

void State::requireFinite() const {
  for (const auto &[name, tensor] : tensors) {
    const int64_t bad = firstNotFinite(tensor);
    PULSORA_CHECK(StateError, bad < 0, "tensor '", name, "' of the state, ",
                  describeShape(tensor.shape), ", has a value that is not finite, element ", bad,
                  " in order; no tile goes on from that (has the training diverged?)");
  }
  for (const auto &[name, value] : values) {
    PULSORA_CHECK(StateError, !value.real() || std::isfinite(*value.real()), "value '", name,
                  "' of the state is ", value.describe(), "; it must be finite");
  }
}

const Tensor &State::get(const std::string &name, Tensor::Type type,
                         const std::vector<int64_t> &shape) const {
  const auto found = tensors.find(name);
  PULSORA_CHECK(StateError, found != tensors.end(), "the state has no tensor '", name,
                "'; it belongs to another configuration or is incomplete");
  const Tensor &tensor = found->second;
  PULSORA_CHECK(StateError, tensor.type == type && tensor.shape == shape, "tensor '", name,
                "' of the state is ", numpyName(tensor.type), describeShape(tensor.shape),
                " where ", numpyName(type), describeShape(shape),
                " is expected; the state belongs to another configuration");
  return tensor;
}

uint64_t State::counter(const std::string &name, uint64_t most) const {
  const auto found = values.find(name);
  const int64_t *value = found == values.end() ? nullptr : found->second.integer();
  PULSORA_CHECK(StateError, value && *value >= 0, "the state has no count '", name,
                "'; it is incomplete or was made by another version");
  PULSORA_CHECK(StateError, static_cast<uint64_t>(*value) <= most, "the state's count '", name,
                "' is ", *value, "; it is at most ", most, ": the state is damaged");
  return static_cast<uint64_t>(*value);
}

double State::number(const std::string &name) const {
  const auto found = values.find(name);
  const double *value = found == values.end() ? nullptr : found->second.real();
  PULSORA_CHECK(StateError, value, "the state has no number '", name,
                "'; it is incomplete or was made by another version");
  return *value;
}

}  // namespace pulsora
