#pragma once

#include <new>
#include <type_traits>

#include "core/isa.h"
#include "devices/model_contract.h"
#include "runtime/plugin_table.h"

// The description of the parameters of a model compiled at run time. Uses no standard
// library functions with code of their own, because the machine's compiler compiles this header
// (runtime/plugin.h).

namespace pulsora {
namespace plugin {

/// The argument of a struct's own check() (see ParamsCheck in parameters/field.h).
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

template <class T>
const T &some();  // only declared
template <class Params, class = void>
struct HasCheck : std::false_type {};
template <class Params>
struct HasCheck<Params, std::void_t<decltype(some<Params>().check(some<Check>()))>>
    : std::true_type {};

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

/// The visitor of Params::fields() that passes each field to the library.
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

/// Whether the parameters are consistent; if not, `message` gets the reason.
template <class Params>
bool holds(const Params &params, const PluginMessage &message) {
  bool holds = true;
  if constexpr (HasCheck<Params>::value) params.check(Check{&message, &holds});
  return holds;
}

/// The first part of a model's table. `Common` is the first part of its parameters.
template <class Model, class Common, Isa isa>
constexpr PluginHead headOf() {
  using Params = typename Model::Params;
  static_assert(std::is_trivially_copyable_v<Params>, "Params consist of numbers");
  return {kPluginAbi,
          static_cast<uint32_t>(isa),
          sizeof(Common),
          sizeof(Params),
          alignof(Params),
          Model::kName,
          Model::kDoc,
          [](void *context, void (*take)(void *, const PluginField *)) {
            const Params defaults{};
            FieldTeller<Params> teller{defaults, context, take};
            Params::fields(teller);
          },
          [](void *params) { new (params) Params{}; },
          [](const void *params, const PluginMessage *message) -> int32_t {
            return holds(*static_cast<const Params *>(params), *message) ? 1 : 0;
          }};
}

/// True; for a struct that cannot be a model from source, a compile error says why.
template <class Device>
constexpr bool isPluginModel() {
  static_assert(isDeviceModel<Device>());
  static_assert(sizeof(typename Device::Cell) % sizeof(float) == 0, "a Cell consists of floats");
  return true;
}

}  // namespace plugin
}  // namespace pulsora
