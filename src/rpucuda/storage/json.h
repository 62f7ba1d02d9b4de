#pragma once

#include <string>
#include <string_view>

#include "parameters/value.h"

namespace pulsora {

/// Text nested deeper than this is refused by parseJson().
constexpr int kMaxJsonDepth = 32;

/// The value that a text in JSON (RFC 8259, UTF-8) stands for. A number without fraction and
/// exponent is an integer of 64 bits, any other a double. Strict: StateError, with the position in
/// bytes, for anything else than one value, repeated names in an object, NaN, numbers out of range,
/// and halves of surrogate pairs.
Value parseJson(std::string_view text);

/// The value as JSON, names in order, from which parseJson() and other readers get the same value.
/// StateError for what JSON cannot express: a number that is not finite, text that is not UTF-8.
std::string writeJson(const Value &value);

}  // namespace pulsora
