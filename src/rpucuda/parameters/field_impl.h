#pragma once

// Implementation of the templates of field.h.

#include "parameters/field.h"

namespace pulsora {
namespace detail {

template <class T>
inline constexpr bool kIsAuto = false;
template <class T>
inline constexpr bool kIsAuto<Auto<T>> = true;

template <class T>
std::string typeName() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_enum_v<T>)
    return "enum";
  else if constexpr (std::is_integral_v<T>)
    return "int";
  else if constexpr (std::is_floating_point_v<T>)
    return "float";
  else if constexpr (std::is_same_v<T, FloatList>)
    return "floats";
  else if constexpr (std::is_same_v<T, AutoFloat>)
    return "auto";
  else if constexpr (std::is_same_v<T, AutoInt> || std::is_same_v<T, AutoLong>)
    return "auto int";
  else if constexpr (IsStruct<T>::value)
    return "struct";
  else
    return T::kFieldType;
}

}  // namespace detail

template <class T>
void readField(T &out, const Value &value, const Range &range, const std::string &path,
               const char *keyword) {
  using namespace detail;
  if constexpr (std::is_same_v<T, bool>) {
    out = readBool(value, path);
  } else if constexpr (std::is_enum_v<T>) {
    out = static_cast<T>(readChoice(value, enumNames<T>(), path));
  } else if constexpr (std::is_integral_v<T>) {
    const int64_t number = readInteger(value, path);
    checkRange(number, range, path);
    PULSORA_CHECK(
        ConfigError,
        number >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
            (sizeof(T) == 8 || number <= static_cast<int64_t>(std::numeric_limits<T>::max())),
        path, " is ", number, ", which does not fit its integer type; use a smaller number");
    out = static_cast<T>(number);
  } else if constexpr (std::is_floating_point_v<T>) {
    const double number = readNumber(value, path);
    checkRange(number, range, path);
    out = toFloat(number, path);
  } else if constexpr (kIsAuto<T>) {
    if (const std::string *text = value.text()) {
      PULSORA_CHECK(ConfigError, *text == keyword, path, " is '", *text, "'; write a number or '",
                    keyword, "'");
      out = T::byLibrary();
    } else {
      T number;
      readField(number.value, value, range, path, keyword);
      out = number;
    }
  } else if constexpr (std::is_same_v<T, FloatList>) {
    const auto *list = value.list();
    PULSORA_CHECK(ConfigError, list, path, " is ", value.describe(), "; write a list of numbers");
    PULSORA_CHECK(ConfigError, list->size() <= FloatList::kCapacity, path, " has ", list->size(),
                  " entries; at most ", int(FloatList::kCapacity), " are possible");
    FloatList read;
    for (const Value &entry : *list) {
      const std::string entryPath = message(path, "[", read.count, "]");
      const double number = readNumber(entry, entryPath);
      checkRange(number, range, entryPath);
      read.values[read.count++] = toFloat(number, entryPath);
    }
    out = read;
  } else if constexpr (IsStruct<T>::value) {
    out = readParams<T>(value, path);
  } else {
    out = T::read(value, path);
  }
}

template <class T>
Value writeField(const T &in, const char *keyword) {
  if constexpr (std::is_enum_v<T>) {
    return Value(nameOf(in));
  } else if constexpr (std::is_same_v<T, bool>) {
    return Value(in);
  } else if constexpr (std::is_integral_v<T>) {
    return Value(static_cast<int64_t>(in));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Value(shortestDouble(in));
  } else if constexpr (detail::kIsAuto<T>) {
    return in.automatic ? Value(keyword) : writeField(in.value, keyword);
  } else if constexpr (std::is_same_v<T, FloatList>) {
    Value::List list;
    for (int i = 0; i < in.count; ++i) list.emplace_back(shortestDouble(in.values[i]));
    return Value(std::move(list));
  } else if constexpr (detail::IsStruct<T>::value) {
    return writeParams(in);
  } else {
    return in.write();
  }
}

namespace detail {

template <class Params>
struct FieldReader {
  Params &params;
  const Value::Map &map;
  const std::string &path;
  std::vector<std::string> known;

  template <class Owner, class T>
  void operator()(T Owner::*member, const char *name, const Range &range, const char *,
                  const char *, const char *keyword = "") {
    known.emplace_back(name);
    const auto found = map.find(name);
    if (found != map.end()) {
      readField(params.*member, found->second, range, joinPath(path, name), keyword);
    }
  }
};

template <class Params>
struct FieldWriter {
  const Params &params;
  Value::Map map;

  template <class Owner, class T>
  void operator()(T Owner::*member, const char *name, const Range &, const char *, const char *,
                  const char *keyword = "") {
    map[name] = writeField(params.*member, keyword);
  }
};

// Lists of objects state how long they may be.
template <class T, class = void>
struct HasLength : std::false_type {};
template <class T>
struct HasLength<T, std::void_t<decltype(T::describeLength())>> : std::true_type {};

template <class Params>
struct FieldDescriber {
  Params defaults{};
  std::vector<FieldInfo> rows;

  template <class Owner, class T>
  void operator()(T Owner::*member, const char *name, const Range &range, const char *unit,
                  const char *doc, const char *keyword = "") {
    FieldInfo row;
    row.name = name;
    row.type = typeName<T>();
    row.unit = unit;
    row.doc = doc;
    if (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) row.range = describe(range);
    if constexpr (std::is_enum_v<T>) row.choices = enumNames<T>();
    if constexpr (kIsAuto<T>) row.choices = {keyword};
    if constexpr (IsStruct<T>::value) row.structName = T::kName;
    if constexpr (HasLength<T>::value) row.range = T::describeLength();
    row.defaultValue = writeField(defaults.*member, keyword);
    rows.push_back(std::move(row));
  }
};

}  // namespace detail

template <class Params>
Params readParams(const Value &value, const std::string &path) {
  const Value::Map *map = value.map();
  PULSORA_CHECK(ConfigError, map, path, " is ", value.describe(),
                "; write a table of named parameters");
  Params params{};
  detail::FieldReader<Params> reader{params, *map, path, {}};
  Params::fields(reader);
  for (const auto &entry : *map) {
    bool found = false;
    for (const auto &name : reader.known) found = found || name == entry.first;
    PULSORA_CHECK(ConfigError, found, joinPath(path, entry.first), " is not a parameter of ",
                  Params::kName, suggest(entry.first, reader.known));
  }
  checkParams(params, path);
  return params;
}

template <class Params>
Value writeParams(const Params &params) {
  detail::FieldWriter<Params> writer{params, {}};
  Params::fields(writer);
  return Value(std::move(writer.map));
}

namespace detail {

/// A number as checkRange() takes it.
template <class T>
auto widened(T number) {
  return static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, double>>(number);
}

template <class Params>
struct RangeChecker {
  const Params &params;
  const std::string &path;

  template <class Owner, class T>
  void operator()(T Owner::*member, const char *name, const Range &range, const char *,
                  const char *, const char * = "") {
    const T &value = params.*member;
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      checkRange(widened(value), range, joinPath(path, name));
    } else if constexpr (kIsAuto<T>) {
      if (!value.automatic) checkRange(widened(value.value), range, joinPath(path, name));
    } else if constexpr (std::is_same_v<T, FloatList>) {
      for (int i = 0; i < value.count; ++i) {
        checkRange(widened(value.values[i]), range, message(joinPath(path, name), "[", i, "]"));
      }
    } else if constexpr (IsStruct<T>::value) {
      checkParams(value, joinPath(path, name));
    }
  }
};

template <class T, class = void>
struct HasCheck : std::false_type {};
template <class T>
struct HasCheck<
    T, std::void_t<decltype(std::declval<const T &>().check(std::declval<const ParamsCheck &>()))>>
    : std::true_type {};

}  // namespace detail

template <class Params>
void checkParams(const Params &params, const std::string &path) {
  detail::RangeChecker<Params> checker{params, path};
  Params::fields(checker);
  // A struct whose members constrain one another says so in check().
  if constexpr (detail::HasCheck<Params>::value) params.check(ParamsCheck{path});
}

template <class Params>
std::vector<FieldInfo> describeParams() {
  detail::FieldDescriber<Params> describer;
  Params::fields(describer);
  return describer.rows;
}

}  // namespace pulsora
