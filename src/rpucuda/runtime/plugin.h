#pragma once

#include <new>
#include <type_traits>

#include "array/cpu/kernels.h"
#include "cuda/array/model_launches.h"
#include "devices/model_contract.h"
#include "runtime/plugin_table.h"

// A device model as a plugin: what the library compiles at run time together with the model's text.
// Nothing of the standard library with code of its own is used here; this is compiled for one
// instruction set, and loaded beside code for others.

namespace RPU {
namespace plugin {

/// What a struct's own check() calls (see ParamsCheck of core/field.h).
struct Check {
  struct Path {
    const char *name;
  };
  const PluginMessage *message;
  bool *holds;

  Path path(const char *name) const { return {name}; }
  template <class... Parts>
  void require(bool condition, const Parts &...parts) const {
    if (condition || !*holds) return;
    *holds = false;
    (say(parts), ...);
  }

 private:
  void say(const char *text) const { message->text(message->context, text); }
  void say(Path path) const { message->path(message->context, path.name); }
  template <class Number>
  void say(Number number) const {
    static_assert(std::is_arithmetic_v<Number>,
                  "a message of check() consists of texts, numbers and c.path(\"name\")");
    if constexpr (std::is_floating_point_v<Number>) {
      message->number(message->context, static_cast<double>(number));
    } else {
      message->integer(message->context, static_cast<int64_t>(number));
    }
  }
};

template <class Params, class = void>
struct HasCheck : std::false_type {};
template <class Params>
struct HasCheck<Params, std::void_t<decltype(static_cast<const Params *>(nullptr)->check(
                            *static_cast<const Check *>(nullptr)))>> : std::true_type {};

template <class T>
constexpr PluginType typeOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return PluginType::Bool;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return PluginType::Int32;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return PluginType::Int64;
  } else if constexpr (std::is_same_v<T, float>) {
    return PluginType::Float;
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(sizeof(T) == sizeof(int32_t), "an enum that is a parameter is stored as an int");
    return PluginType::Enum;
  } else {
    static_assert(std::is_same_v<T, FloatList>,
                  "a parameter of a model from source is a bool, int, int64_t, float, enum with "
                  "EnumNames, or FloatList");
    return PluginType::Floats;
  }
}

/// The visitor of Params::fields() that tells the library of each.
template <class Params>
struct FieldTeller {
  const Params &params;
  void *context;
  void (*take)(void *context, const PluginField *row);

  template <class Owner, class T>
  void operator()(T Owner::*member, const char *name, const Range &range, const char *unit,
                  const char *doc) {
    PluginField row{name, typeOf<T>(), 0, range, unit, doc, nullptr, 0};
    row.offset = static_cast<uint32_t>(reinterpret_cast<const char *>(&(params.*member)) -
                                       reinterpret_cast<const char *>(&params));
    if constexpr (std::is_enum_v<T>) {
      row.choices = EnumNames<T>::kNames;
      row.choiceCount = static_cast<int32_t>(sizeof EnumNames<T>::kNames / sizeof(const char *));
    }
    take(context, &row);
  }
};

/// Launches by the library.
template <class Device>
struct GpuLauncher {
  inline static const PluginLauncher *library = nullptr;

  template <gpu::ModelKernel kernel, class... Arguments>
  static void launch(void *stream, unsigned blocks, unsigned threads,
                     const Arguments &...arguments) {
    const void *const list[] = {&arguments...};
    const uint64_t sizes[] = {sizeof(Arguments)...};
    library->launch(library->context, static_cast<int32_t>(kernel), blocks, threads, list, sizes,
                    sizeof...(Arguments), stream);
  }
  static void clear(void *data, uint64_t bytes, void *stream) {
    library->clear(library->context, data, bytes, stream);
  }
  static bool multipliesBits() { return library->multipliesBits(library->context) != 0; }
};

template <class Device, Isa isa>
struct Plugin {
  using Params = typename Device::Params;
  static_assert(isDeviceModel<Device>());
  static_assert(std::is_trivially_copyable_v<Params>, "Params consist of numbers");
  static_assert(sizeof(typename Device::Cell) % sizeof(float) == 0, "a Cell consists of floats");

  static void fields(void *context, void (*take)(void *, const PluginField *)) {
    const Params defaults{};
    FieldTeller<Params> teller{defaults, context, take};
    Params::fields(teller);
  }
  static void members(void *context, void (*take)(void *, const char *)) {
    typename Device::Cell cell{};
    cell.members([&](const char *name, float &) { take(context, name); });
  }
  static void defaults(void *params) { new (params) Params{}; }
  static int32_t check(const PulsedParams *params, const PluginMessage *message) {
    bool holds = true;
    if constexpr (HasCheck<Params>::value) paramsOf<Params>(*params).check(Check{message, &holds});
    return holds ? 1 : 0;
  }
  static float granularity(const PulsedParams *params) {
    return Device::granularity(paramsOf<Params>(*params));
  }
  static void setLauncher(const PluginLauncher *launcher) {
    GpuLauncher<Device>::library = launcher;
  }
  static const PluginTable *table() {
    static const PluginTable kTable = {kPluginAbi,
                                       static_cast<uint32_t>(isa),
                                       sizeof(PulsedParams),
                                       sizeof(Params),
                                       alignof(Params),
                                       kMergesNoise<Device> ? 1U : 0U,
                                       Device::kName,
                                       Device::kDoc,
                                       &fields,
                                       &members,
                                       &defaults,
                                       &check,
                                       &granularity,
                                       &cpuKernels<Device, isa>(),
                                       &gpu::ModelLaunches<Device, GpuLauncher<Device>>::kTable,
                                       &setLauncher};
    return &kTable;
  }
};

}  // namespace plugin
}  // namespace RPU

/// Exports the model `Device` with its kernels for `isa`.
#define PULSORA_PLUGIN(Device, isa)                                                           \
  extern "C" __attribute__((visibility("default"))) const RPU::PluginTable *pulsoraPlugin() { \
    return RPU::plugin::Plugin<RPU::Device, RPU::Isa::isa>::table();                          \
  }
