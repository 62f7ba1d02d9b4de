#include "parameters/field.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "parameters/limits.h"

namespace pulsora {
namespace {

// Levenshtein distance, for "did you mean".
size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// A limit in as few digits as message() shows, or a whole number that needs more in full.
std::string shownLimit(double limit) {
  const bool isLong = std::nearbyint(limit) == limit && std::fabs(limit) < 9e15;
  return isLong && std::fmod(limit, 1e9) != 0.0 ? message(static_cast<int64_t>(limit))
                                                : message(limit);
}

}  // namespace

std::string describe(const Range &range) {
  const bool hasLow = std::isfinite(range.low);
  const bool hasHigh = std::isfinite(range.high);
  if (!hasLow && !hasHigh) return "any finite number";
  std::string text;
  if (hasLow) text += (range.lowOpen ? "> " : ">= ") + shownLimit(range.low);
  if (hasLow && hasHigh) text += " and ";
  if (hasHigh) text += (range.highOpen ? "< " : "<= ") + shownLimit(range.high);
  return text;
}

double shortestDouble(float value) {
  char text[32];
  for (int digits = 6; digits < 9; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
    const double decimal = std::strtod(text, nullptr);
    if (static_cast<float>(decimal) == value) return decimal;
  }
  return static_cast<double>(value);
}

std::string joinPath(const std::string &path, const std::string &name) {
  return path.empty() ? name : path + "." + name;
}

std::string suggest(const std::string &wanted, const std::vector<std::string> &names) {
  std::string all;
  const std::string *best = nullptr;
  size_t bestDistance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const auto &name : names) {
    all += (all.empty() ? "'" : ", '") + name + "'";
    const size_t distance = editDistance(wanted, name);
    if (distance < bestDistance) {
      bestDistance = distance;
      best = &name;
    }
  }
  return (best ? "; did you mean '" + *best + "'? Known: " : "; known: ") + all;
}

namespace detail {

double readNumber(const Value &value, const std::string &path) {
  if (const double *v = value.real()) return *v;
  if (const int64_t *v = value.integer()) return static_cast<double>(*v);
  throw ConfigError(message(path, " is ", value.describe(), "; write a number"));
}

int64_t readInteger(const Value &value, const std::string &path) {
  if (const int64_t *v = value.integer()) return *v;
  if (const double *v = value.real()) {
    if (std::nearbyint(*v) == *v && std::fabs(*v) < 9e15) return static_cast<int64_t>(*v);
  }
  throw ConfigError(message(path, " is ", value.describe(), "; write a whole number"));
}

bool readBool(const Value &value, const std::string &path) {
  if (const bool *v = value.boolean()) return *v;
  throw ConfigError(message(path, " is ", value.describe(), "; write True or False"));
}

const std::string &readText(const Value &value, const std::string &path) {
  if (const std::string *v = value.text()) return *v;
  throw ConfigError(message(path, " is ", value.describe(), "; write one of its names as text"));
}

size_t readChoice(const Value &value, const std::vector<std::string> &names,
                  const std::string &path) {
  const std::string &text = readText(value, path);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return i;
  }
  throw ConfigError(message(path, " is '", text, "', which is not a choice", suggest(text, names)));
}

void checkRange(int64_t number, const Range &range, const std::string &path) {
  PULSORA_CHECK(ConfigError, range.contains(static_cast<double>(number)), path, " is ", number,
                "; it must be ", describe(range));
}

void checkRange(double number, const Range &range, const std::string &path) {
  PULSORA_CHECK(ConfigError, std::isfinite(number), path, " is ", number, "; it must be finite");
  PULSORA_CHECK(ConfigError, range.contains(number), path, " is ", number, "; it must be ",
                describe(range));
}

float toFloat(double number, const std::string &path) {
  PULSORA_CHECK(ConfigError, std::fabs(number) <= kLargestSetting, path, " is ", number,
                ", with which products are beyond single precision; give ", kLargestSetting,
                " at most, of either sign");
  return static_cast<float>(number);
}

}  // namespace detail
}  // namespace pulsora
