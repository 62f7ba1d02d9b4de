#include "storage/json.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/check.h"

namespace pulsora {
namespace {

bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Number of bytes of the UTF-8 character at `at`; 0 if there is no valid one.
size_t utf8Length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // Invalid: overlong, half a surrogate pair, or beyond the last character.
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

void appendUtf8(std::string &out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | (code >> 6U));
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 0x3FU));
    put(0x80U | ((code >> 6U) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value document() {
    Value result = value(0);
    skipSpace();
    require(at_ == text_.size(), "there is more text behind the value");
    return result;
  }

 private:
  void require(bool holds, const char *what) const {
    PULSORA_CHECK(StateError, holds, "JSON, byte ", at_, ": ", what);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char wanted) {
    if (peek() != wanted || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  bool takeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != text_.npos) ++at_;
  }

  // Reads a value inside `depth` open lists and objects.
  Value value(int depth) {
    skipSpace();
    if (peek() == '{') return object(depth + 1);
    if (peek() == '[') return list(depth + 1);
    if (peek() == '"') return Value(string());
    if (takeWord("true")) return Value(true);
    if (takeWord("false")) return Value(false);
    if (takeWord("null")) return {};
    return number();
  }

  Value object(int depth) {
    require(depth <= kMaxJsonDepth, "nested too deep");
    ++at_;
    Value::Map map;
    skipSpace();
    if (take('}')) return Value(std::move(map));
    do {
      skipSpace();
      require(peek() == '"', "a name in quotes is expected");
      std::string name = string();
      require(map.find(name) == map.end(), "a name of this object occurs twice");
      skipSpace();
      require(take(':'), "':' is expected");
      map.emplace(std::move(name), value(depth));
      skipSpace();
    } while (take(','));
    require(take('}'), "',' or '}' is expected");
    return Value(std::move(map));
  }

  Value list(int depth) {
    require(depth <= kMaxJsonDepth, "nested too deep");
    ++at_;
    Value::List values;
    skipSpace();
    if (take(']')) return Value(std::move(values));
    do {
      values.push_back(value(depth));
      skipSpace();
    } while (take(','));
    require(take(']'), "',' or ']' is expected");
    return Value(std::move(values));
  }

  std::string string() {
    ++at_;
    std::string out;
    while (!take('"')) {
      require(at_ < text_.size(), "a string has no end");
      if (take('\\')) {
        escaped(out);
        continue;
      }
      require(static_cast<unsigned char>(peek()) >= 0x20, "a control character in a string");
      const size_t length = utf8Length(text_, at_);
      require(length > 0, "this is not UTF-8");
      out += text_.substr(at_, length);
      at_ += length;
    }
    return out;
  }

  void escaped(std::string &out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : kNames.npos;
    if (which != kNames.npos) {
      out += kMeanings[which];
      ++at_;
      return;
    }
    require(take('u'), "an unknown escape in a string");
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      require(takeWord("\\u"), "half a surrogate pair in a string");
      const uint32_t low = hex4();
      require(low >= 0xDC00 && low < 0xE000, "half a surrogate pair in a string");
      code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
    }
    require(code < 0xD800 || code >= 0xE000, "half a surrogate pair in a string");
    appendUtf8(out, code);
  }

  uint32_t hex4() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const size_t digit =
          kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      require(digit != kDigits.npos, "four hexadecimal digits are expected");
      code = 16 * code + static_cast<uint32_t>(digit);
    }
    return code;
  }

  void digits() {
    require(isDigit(peek()), "a value is expected");
    while (isDigit(peek())) ++at_;
  }

  Value number() {
    const size_t start = at_;
    take('-');
    if (!take('0')) digits();
    const size_t wholeEnd = at_;
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
    const char *first = text_.data() + start;
    const char *last = text_.data() + at_;
    if (at_ == wholeEnd) {
      int64_t whole = 0;
      require(std::from_chars(first, last, whole).ec == std::errc{}, "an integer beyond 64 bits");
      return Value(whole);
    }
    double real = 0.0;
    require(std::from_chars(first, last, real).ec == std::errc{}, "a number out of range");
    return Value(real);
  }

  std::string_view text_;
  size_t at_ = 0;
};

void writeString(std::string &out, const std::string &text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8Length(text, at);
    PULSORA_CHECK(StateError, length > 0, "byte ", at,
                  " of a text is not UTF-8, which JSON asks for");
    const auto first = static_cast<unsigned char>(text[at]);
    if (first == '"' || first == '\\') out += '\\';
    if (first < 0x20) {
      out += "\\u00";
      out += kHex[first >> 4U];
      out += kHex[first & 0xFU];
    } else {
      out.append(text, at, length);
    }
    at += length;
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

Value parseJson(std::string_view text) { return Parser(text).document(); }

std::string writeJson(const Value &value) {
  std::string out;
  write(out, value);
  return out;
}

}  // namespace pulsora
