#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pulsora {

/// A JSON-like value: how configurations and the scalar part of a state cross between C++, Python
/// and files.
class Value {
 public:
  using List = std::vector<Value>;
  using Map = std::map<std::string, Value>;

  Value() = default;
  Value(bool v) : data_(v) {}
  Value(int v) : data_(static_cast<int64_t>(v)) {}
  Value(int64_t v) : data_(v) {}
  /// Integers are signed: a larger count becomes INT64_MAX.
  Value(uint64_t v) : data_(static_cast<int64_t>(std::min(v, uint64_t{INT64_MAX}))) {}
  Value(double v) : data_(v) {}
  Value(const char *v) : data_(std::string(v)) {}
  Value(std::string v) : data_(std::move(v)) {}
  Value(List v) : data_(std::move(v)) {}
  Value(Map v) : data_(std::move(v)) {}

  /// Whether both are of one kind: both integers, both texts, ...
  bool isLike(const Value &other) const { return data_.index() == other.data_.index(); }
  bool isNull() const { return std::holds_alternative<std::monostate>(data_); }
  const bool *boolean() const { return std::get_if<bool>(&data_); }
  const int64_t *integer() const { return std::get_if<int64_t>(&data_); }
  const double *real() const { return std::get_if<double>(&data_); }
  const std::string *text() const { return std::get_if<std::string>(&data_); }
  const List *list() const { return std::get_if<List>(&data_); }
  const Map *map() const { return std::get_if<Map>(&data_); }
  Map *map() { return std::get_if<Map>(&data_); }
  List *list() { return std::get_if<List>(&data_); }

  /// Short rendering for error messages, for example `0.5`, `'abc'`, `[1, 2]`, `{...}`.
  std::string describe() const;

  bool operator==(const Value &other) const { return data_ == other.data_; }
  bool operator!=(const Value &other) const { return !(*this == other); }

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Map> data_;
};

}  // namespace pulsora
