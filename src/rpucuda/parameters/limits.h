#pragma once

namespace pulsora {

/// The largest magnitude of a setting and of a learning rate. Formulas multiply two such values, a
/// number of lines and a number of standard deviations; products stay within single precision.
constexpr double kLargestSetting = 1e15;

}  // namespace pulsora
