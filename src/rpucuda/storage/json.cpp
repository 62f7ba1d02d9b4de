#include "storage/json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/check.h"

namespace pulsora {
namespace {

/// Builds a Value from the events of nlohmann's parser, which the parser calls by these names.
class Builder {
 public:
  explicit Builder(const char *begin) : begin_(begin) {}

  Value result() { return std::move(result_); }
  /// The parser's place, which it moves.
  const char *at = nullptr;

  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return take({}); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(int64_t value) { return take(value); }
  bool number_unsigned(uint64_t value) {
    require(value <= INT64_MAX, "an integer beyond 64 bits");
    return take(value);
  }
  bool number_float(double value, const std::string &text) {
    // The parser makes a float of an integer that is too large.
    require(text.find_first_of(".eE") != text.npos, "an integer beyond 64 bits");
    return take(value);
  }
  bool string(std::string &text) { return take(std::move(text)); }
  bool binary(std::vector<uint8_t> &) { return false; }  // no such value in text
  bool start_object(size_t) { return open(Value::Map{}); }
  bool start_array(size_t) { return open(Value::List{}); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string &name) {
    const Value::Map &map = *open_.back().value.map();
    require(map.find(name) == map.end(), "a name of this object occurs twice");
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(size_t byte, const std::string &, const nlohmann::json::exception &error) {
    std::string reason = error.what();
    // It quotes the text, whose bytes may be anything and many.
    for (char &c : reason) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
    throw StateError(message("JSON, byte ", byte, ": ", reason.substr(0, 300)));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  struct Open {
    Value value;
    std::string name;  // of an object's next entry
  };

  void require(bool holds, const char *what) const {
    PULSORA_CHECK(StateError, holds, "JSON, byte ", at - begin_, ": ", what);
  }
  bool open(Value value) {
    require(open_.size() < kMaxJsonDepth, "nested too deep");
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    return take(std::move(value));
  }
  bool take(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (Value::Map *map = open_.back().value.map()) {
      map->emplace(std::move(open_.back().name), std::move(value));
    } else {
      open_.back().value.list()->push_back(std::move(value));
    }
    return true;
  }

  const char *begin_;
  std::vector<Open> open_;
  Value result_;
};

/// An iterator over a text that tells the builder where the parser is.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char *;
  using reference = const char &;

  const char *at;
  Builder *builder;

  reference operator*() const { return *at; }
  Cursor &operator++() {
    builder->at = ++at;
    return *this;
  }
  bool operator==(const Cursor &other) const { return at == other.at; }
  bool operator!=(const Cursor &other) const { return at != other.at; }
};

void writeString(std::string &out, const std::string &text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::exception &error) {
    throw StateError(message("a text is not UTF-8, which JSON asks for: ", error.what()));
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20) {
      out += "\\u00";
      out += kHex[code >> 4U];
      out += kHex[code & 0xFU];
      continue;
    }
    if (byte == '"' || byte == '\\') out += '\\';
    out += byte;
  }
  out += '"';
}

void writeReal(std::string &out, double number) {
  PULSORA_CHECK(StateError, std::isfinite(number), "a value is ", number,
                ", which JSON cannot express");
  char buffer[32];
  const char *end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  out += digits;
  // A reader takes a number without fraction and exponent for an integer.
  if (digits.find_first_of(".e") == digits.npos) out += ".0";
}

// Our own writer, because the bytes of a file must not depend on the library's version.
void write(std::string &out, const Value &value) {
  if (const bool *v = value.boolean()) {
    out += *v ? "true" : "false";
  } else if (const int64_t *whole = value.integer()) {
    out += std::to_string(*whole);
  } else if (const double *real = value.real()) {
    writeReal(out, *real);
  } else if (const std::string *text = value.text()) {
    writeString(out, *text);
  } else if (const Value::List *list = value.list()) {
    out += '[';
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out += ", ";
      write(out, (*list)[i]);
    }
    out += ']';
  } else if (const Value::Map *map = value.map()) {
    out += '{';
    const char *separator = "";
    for (const auto &[name, entry] : *map) {
      out += separator;
      writeString(out, name);
      out += ": ";
      write(out, entry);
      separator = ", ";
    }
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace

Value parseJson(std::string_view text) {
  const char *const begin = text.data();
  Builder builder(begin);
  builder.at = begin;
  const Cursor first{begin, &builder}, last{begin + text.size(), &builder};
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.result();
}

std::string writeJson(const Value &value) {
  std::string out;
  write(out, value);
  return out;
}

}  // namespace pulsora
