#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parameters/field_types.h"
#include "parameters/value.h"

// One table of names. A parameter struct lists its members once:
//
//   struct Params {
//     float dw_min = 0.001f;
//     template <class Visitor>
//     static void fields(Visitor &f) {
//       f(&Params::dw_min, "dw_min", positive(), "weight",
//         "Mean weight change of one pulse at w = 0.");
//     }
//   };
//
// and from that list come the Python dataclass, its documentation, the messages of the range
// checks, and the form in which the parameters are saved. Defaults come from a
// default-constructed struct.

namespace pulsora {

/// One row of the table, as the bindings, the documentation and the tests see it.
struct FieldInfo {
  std::string name;
  std::string type;  // float, int, bool, enum, floats, auto, auto int, struct, device, devices
  std::string unit;
  std::string doc;
  std::string range;                 // of numbers, or of the length of a list, as text
  std::vector<std::string> choices;  // of an enum; the keyword of an auto
  std::string structName;            // of a struct field
  Value defaultValue;
};

/// The double with the fewest decimals that rounds to this float: 0.001f is written 0.001, not
/// 0.00100000005.
double shortestDouble(float value);

/// For example "> 0", ">= 1 and <= 64", "any finite number".
std::string describe(const Range &range);

/// Appends a name to a configuration path: joinPath("visible", "dw_min") is "visible.dw_min".
std::string joinPath(const std::string &path, const std::string &name);

/// The list "'a', 'b', 'c'" of `names`, preceded by a "did you mean" hint if one of them resembles
/// `wanted`.
std::string suggest(const std::string &wanted, const std::vector<std::string> &names);

/// Argument of a struct's own check(const Check &c), which states constraints between members by
/// c.require(condition, c.path("name"), " is ...; remedy"). A template over Check compiles without
/// a host.
struct ParamsCheck {
  std::string prefix;  ///< configuration path of the struct

  std::string path(const char *name) const { return joinPath(prefix, name); }
  /// Throws ConfigError with these parts as its message unless `holds`.
  template <class... Parts>
  void require(bool holds, const Parts &...parts) const {
    PULSORA_CHECK(ConfigError, holds, parts...);
  }
};

namespace detail {

template <class T, class = void>
struct IsStruct : std::false_type {};
template <class T>
struct IsStruct<T, std::void_t<decltype(T::kName)>> : std::true_type {};

double readNumber(const Value &value, const std::string &path);
int64_t readInteger(const Value &value, const std::string &path);
bool readBool(const Value &value, const std::string &path);
const std::string &readText(const Value &value, const std::string &path);
/// Index of a text among `names`.
size_t readChoice(const Value &value, const std::vector<std::string> &names,
                  const std::string &path);
void checkRange(int64_t number, const Range &range, const std::string &path);
void checkRange(double number, const Range &range, const std::string &path);
/// The float nearest to `number`; an error if it overflows.
float toFloat(double number, const std::string &path);

template <class Enum>
std::vector<std::string> enumNames() {
  std::vector<std::string> names;
  for (const char *name : EnumNames<Enum>::kNames) names.emplace_back(name);
  return names;
}

}  // namespace detail

/// The name of a value of an enum that is a parameter, as users write it.
template <class Enum>
const char *nameOf(Enum value) {
  return EnumNames<Enum>::kNames[static_cast<size_t>(value)];
}

/// Reads one member from a value; overloads exist for every type a parameter can have.
template <class T>
void readField(T &out, const Value &value, const Range &range, const std::string &path,
               const char *keyword);
template <class T>
Value writeField(const T &in, const char *keyword);

/// Reads a whole struct: members that `value` lacks keep their default, unknown names are refused.
template <class Params>
Params readParams(const Value &value, const std::string &path);
/// The struct as a map of all its members.
template <class Params>
Value writeParams(const Params &params);
/// Checks every range of a struct that C++ code filled in.
template <class Params>
void checkParams(const Params &params, const std::string &path);
/// The table as data, one row per member.
template <class Params>
std::vector<FieldInfo> describeParams();

}  // namespace pulsora

#include "parameters/field_impl.h"
