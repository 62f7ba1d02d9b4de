#pragma once

#include "cuda/array/launch_arguments.h"
#include "devices/batch_noise.h"
#include "runtime/plugin_params.h"

// What a device model tells of itself as bytes, for a machine on which only a GPU can run it: the
// facts of a PluginTable, written by one thread of a GPU (runtime/plugin_facts.cuh), and read by
// runtime/gpu_model.h. Numbers stand as they lie in memory, texts end with a zero.

namespace pulsora {
namespace plugin {

/// How the facts begin; see PluginTable. Sizes of structs, so that the library can lay out the
/// arguments of kernels as their code expects them.
struct FactsHead {
  uint32_t abi;
  uint32_t commonSize;
  uint32_t paramsSize;
  uint32_t paramsAlignment;
  uint32_t arraySize;   // of gpu::Array<Device>
  uint32_t updateSize;  // of gpu::ArrayUpdate<Device>
  uint32_t mergesNoise;
};

/// What comes next in a list: another entry, or the end.
constexpr char kMore = '+';
constexpr char kEnd = '.';

/// The parts of a message.
enum class FactsPart : char { End = kEnd, Text = 't', Number = 'n', Integer = 'i', Path = 'p' };

/// Writes as much as there is room for, and counts all. Functions of which a model has dozens of calls
/// are not inlined: NVRTC would take 20 seconds for them.
#define PULSORA_APART __attribute__((noinline))
struct FactsWriter {
  char *out;
  uint64_t room;
  uint64_t size = 0;

  PULSORA_APART void bytes(const void *from, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++size)
      if (size < room) out[size] = static_cast<const char *>(from)[i];
  }
  template <class T>
  void number(const T &value) {
    bytes(&value, sizeof value);
  }
  PULSORA_APART void text(const char *text) {
    uint64_t length = 0;
    while (text[length] != '\0') ++length;
    bytes(text, length + 1);
  }
  static FactsWriter &of(void *context) { return *static_cast<FactsWriter *>(context); }
};

PULSORA_APART inline void tellField(void *context, const PluginField *row) {
  FactsWriter &w = FactsWriter::of(context);
  w.number(kMore);
  w.text(row->name);
  w.number(row->type);
  w.number(row->offset);
  w.number(row->range);
  w.text(row->unit);
  w.text(row->doc);
  w.number(row->choiceCount);
  for (int32_t i = 0; i < row->choiceCount; ++i) w.text(row->choices[i]);
}

/// The head, name, documentation, default parameters, fields, and names of stored quantities.
template <class Device>
void tellModel(FactsWriter &w) {
  static_assert(isPluginModel<Device>());
  using Params = typename Device::Params;
  w.number(FactsHead{kPluginAbi, sizeof(PulsedParams), sizeof(Params), alignof(Params),
                     sizeof(gpu::Array<Device>), sizeof(gpu::ArrayUpdate<Device>),
                     kMergesNoise<Device> ? 1U : 0U});
  w.text(Device::kName);
  w.text(Device::kDoc);
  const Params defaults{};
  w.number(defaults);
  FieldTeller<Params> teller{defaults, &w, &tellField};
  Params::fields(teller);
  w.number(kEnd);
  typename Device::Cell cell{};
  cell.members([&](const char *name, float &) {
    w.number(kMore);
    w.text(name);
  });
  w.number(kEnd);
}

PULSORA_APART inline void tellText(void *context, const char *text) {
  FactsWriter::of(context).number(FactsPart::Text);
  FactsWriter::of(context).text(text);
}
PULSORA_APART inline void tellNumber(void *context, double number) {
  FactsWriter::of(context).number(FactsPart::Number);
  FactsWriter::of(context).number(number);
}
PULSORA_APART inline void tellInteger(void *context, int64_t number) {
  FactsWriter::of(context).number(FactsPart::Integer);
  FactsWriter::of(context).number(number);
}
PULSORA_APART inline void tellPath(void *context, const char *name) {
  FactsWriter::of(context).number(FactsPart::Path);
  FactsWriter::of(context).text(name);
}

/// The granularity, and the parts of the message if the parameters do not agree with one another.
template <class Device>
void tellParams(const typename Device::Params &params, FactsWriter &w) {
  w.number(Device::granularity(params));
  const PluginMessage message{&w, &tellText, &tellNumber, &tellInteger, &tellPath};
  static_cast<void>(holds(params, message));
  w.number(FactsPart::End);
}

#undef PULSORA_APART

}  // namespace plugin
}  // namespace pulsora
