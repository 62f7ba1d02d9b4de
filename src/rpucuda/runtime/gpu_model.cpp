#include "runtime/gpu_model.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/check.h"
#include "cuda/array/model_launches.h"
#include "runtime/plugin_facts.h"
#include "runtime/plugin_model.h"

namespace pulsora {
namespace {

using plugin::FactsHead;
using plugin::FactsPart;

/// Reads what a plugin::FactsWriter wrote.
class FactsReader {
 public:
  explicit FactsReader(std::string_view facts) : facts_(facts) {}

  std::string_view bytes(size_t count) {
    PULSORA_CHECK(CompileError, count <= facts_.size() - at_,
                  "what a GPU tells of a device model ends ", "after ", facts_.size(),
                  " bytes; its code was made for another version of Pulsora");
    at_ += count;
    return facts_.substr(at_ - count, count);
  }
  template <class T>
  T number() {
    T value;
    const std::string_view from = bytes(sizeof value);
    std::memcpy(&value, from.data(), from.size());
    return value;
  }
  /// A text, which lies in the facts.
  const char *text() {
    const size_t end = facts_.find('\0', at_);
    return bytes(end == facts_.npos ? facts_.npos - at_ : end + 1 - at_).data();
  }
  bool more() { return number<char>() == plugin::kMore; }

 private:
  std::string_view facts_;
  size_t at_ = 0;
};

/// Parameters of a model whose struct only a GPU knows.
struct UnknownParams : PulsedParams {
  const PluginLauncher *launcher = nullptr;
  const char *own = nullptr;  // the model's own struct, which begins with PulsedParams
  uint32_t size = 0;          // of it
  float granularity = 0.0f;
};

struct OwnedParams {
  UnknownParams seen;
  std::vector<uint64_t> own;
};

/// What stands for the model when launches are made (ModelLaunches): everything that they need to
/// know of it but its parameters.
struct UnknownModel {
  using Params = UnknownParams;
  using Cell = PulsedCell;
  using Response = PulsedResponse;
};
struct UnknownMergingModel : UnknownModel {
  static void mixedPulses();
};

/// What follows the array in gpu::ArrayUpdate.
struct UpdateRest {
  PulseWords words;
  gpu::Blocks blocks;
  uint64_t *coincidences;
};

/// Bytes of gpu::Array before the parameters, which come last in it.
constexpr size_t kBeforeParams = sizeof(gpu::Array<UnknownModel>) - sizeof(UnknownParams);

template <class T>
void append(std::string &bytes, const T &value, size_t size = sizeof(T)) {
  bytes.append(reinterpret_cast<const char *>(&value), size);
}

// The bytes of an argument as the model's own code has them.
template <class T>
std::string bytesOf(const T &number, const UnknownParams &) {
  std::string bytes;
  append(bytes, number);
  return bytes;
}
template <class Device>
std::string bytesOf(const gpu::Array<Device> &array, const UnknownParams &params) {
  std::string bytes;
  append(bytes, array, kBeforeParams);
  return bytes.append(params.own, params.size);
}
template <class Device, int kArrays>
std::string bytesOf(const gpu::ArrayUpdates<Device, kArrays> &updates, const UnknownParams &first) {
  std::string bytes;
  for (const gpu::ArrayUpdate<Device> &each : updates.each) {
    // The parameters of an array that is not used do not matter.
    bytes += bytesOf(each.array, each.array.params.own ? each.array.params : first);
    append(bytes, UpdateRest{each.words, each.blocks, each.coincidences});
  }
  return bytes;
}

template <class Device>
const UnknownParams &paramsIn(const gpu::Array<Device> &array) {
  return array.params;
}
template <class Device, int kArrays>
const UnknownParams &paramsIn(const gpu::ArrayUpdates<Device, kArrays> &updates) {
  return updates.each[0].array.params;
}

/// Launches with arguments of the layout that the model's own code expects.
struct UnknownLauncher {
  inline static const PluginLauncher *any = nullptr;  // for what concerns no model

  template <gpu::ModelKernel kernel, class First, class... Rest>
  static void launch(void *stream, unsigned blocks, unsigned threads, const First &first,
                     const Rest &...rest) {
    const UnknownParams &params = paramsIn(first);
    const std::string arguments[] = {bytesOf(first, params), bytesOf(rest, params)...};
    constexpr size_t kCount = 1 + sizeof...(Rest);
    const void *list[kCount];
    uint64_t sizes[kCount];
    for (size_t i = 0; i < kCount; ++i) {
      list[i] = arguments[i].data();
      sizes[i] = arguments[i].size();
    }
    params.launcher->launch(params.launcher->context, static_cast<int32_t>(kernel), blocks, threads,
                            list, sizes, kCount, stream);
  }
  static void clear(void *data, uint64_t bytes, void *stream) {
    any->clear(any->context, data, bytes, stream);
  }
  static bool multipliesBits() { return any->multipliesBits(any->context) != 0; }
};

/// A model as a GPU describes it.
class GpuDescription : public ModelDescription {
 public:
  GpuDescription(ModelFacts facts, const PluginLauncher &launcher)
      : facts_(std::move(facts)), launcher_(launcher), model_(facts_({})) {
    FactsReader reader(model_);
    head_ = reader.number<FactsHead>();
    constexpr size_t kAlignment = alignof(PulsedParams);
    // The sizes hold unless a struct of the model has an alignment of its own.
    PULSORA_CHECK(CompileError,
                  head_.abi == kPluginAbi && head_.commonSize == sizeof(PulsedParams) &&
                      head_.paramsAlignment == kAlignment &&
                      head_.arraySize == kBeforeParams + head_.paramsSize &&
                      head_.updateSize == head_.arraySize + sizeof(UpdateRest),
                  "the parameters of a device model do not lie in a GPU's memory as the library "
                  "expects; leave out alignas, and install a C++ compiler if it has none");
    name_ = reader.text();
    doc_ = reader.text();
    defaults_ = reader.bytes(head_.paramsSize);
    lists_ = reader;
  }

  std::string name() const override { return name_; }
  std::string doc() const override { return doc_; }
  bool mergesNoise() const override { return head_.mergesNoise != 0; }
  void fields(void *context, void (*take)(void *, const PluginField *)) const override {
    FactsReader reader = lists_;
    readFields(reader, context, take);
  }
  void members(void *context, void (*take)(void *, const char *)) const override {
    FactsReader reader = lists_;
    readFields(reader, nullptr, [](void *, const PluginField *) {});
    while (reader.more()) take(context, reader.text());
  }

  std::shared_ptr<PulsedParams> newParams() const override {
    auto owned = std::make_shared<OwnedParams>();
    owned->own.resize(head_.paramsSize / sizeof(uint64_t));
    std::memcpy(owned->own.data(), defaults_.data(), defaults_.size());
    owned->seen.launcher = &launcher_;
    owned->seen.own = reinterpret_cast<const char *>(owned->own.data());
    owned->seen.size = head_.paramsSize;
    return {owned, &owned->seen};
  }
  char *own(PulsedParams &params) const override {
    return const_cast<char *>(paramsOf<UnknownParams>(params).own);
  }
  bool settle(PulsedParams &params, const PluginMessage &message) const override {
    auto &seen = static_cast<UnknownParams &>(params);
    params = *reinterpret_cast<const PulsedParams *>(seen.own);
    const std::string told = facts_({seen.own, seen.size});
    FactsReader reader(told);
    seen.granularity = reader.number<float>();
    for (bool holds = true;; holds = false) {
      switch (reader.number<FactsPart>()) {
        case FactsPart::Text:
          message.text(message.context, reader.text());
          break;
        case FactsPart::Number:
          message.number(message.context, reader.number<double>());
          break;
        case FactsPart::Integer:
          message.integer(message.context, reader.number<int64_t>());
          break;
        case FactsPart::Path:
          message.path(message.context, reader.text());
          break;
        case FactsPart::End:
          return holds;
      }
    }
  }
  float granularity(const PulsedParams &params) const override {
    return paramsOf<UnknownParams>(params).granularity;
  }

 private:
  static void readFields(FactsReader &reader, void *context,
                         void (*take)(void *, const PluginField *)) {
    while (reader.more()) {
      PluginField row{};
      row.name = reader.text();
      row.type = reader.number<PluginType>();
      row.offset = reader.number<uint32_t>();
      row.range = reader.number<Range>();
      row.unit = reader.text();
      row.doc = reader.text();
      row.choiceCount = reader.number<int32_t>();
      std::vector<const char *> choices(static_cast<size_t>(row.choiceCount));
      for (const char *&choice : choices) choice = reader.text();
      row.choices = choices.data();
      take(context, &row);
    }
  }

  ModelFacts facts_;
  const PluginLauncher &launcher_;
  std::string model_;  // the facts, in which lie what follows and the texts of fields
  FactsHead head_{};
  const char *name_ = "";
  const char *doc_ = "";
  std::string_view defaults_;
  FactsReader lists_{{}};
};

}  // namespace

DeviceModel gpuModel(ModelFacts facts, const PluginLauncher &launcher, const std::string &missing) {
  const auto description = std::make_shared<const GpuDescription>(std::move(facts), launcher);
  DeviceModel m = modelOf(description);
  m.cpu = [name = m.name, missing](Isa) -> const PulsedKernels & {
    throw CompilerNotFound(message("the device model '", name,
                                   "' works on a GPU alone in this process; make the tile there "
                                   "(device=\"cuda\"), or start anew with a C++ compiler: ",
                                   missing));
  };
  UnknownLauncher::any = &launcher;
  const PulsedKernels *kernels =
      description->mergesNoise() ? &gpu::ModelLaunches<UnknownMergingModel, UnknownLauncher>::kTable
                                 : &gpu::ModelLaunches<UnknownModel, UnknownLauncher>::kTable;
  m.cuda = [kernels] { return kernels; };
  return m;
}

}  // namespace pulsora
