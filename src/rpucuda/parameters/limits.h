#pragma once

namespace pulsora {

/// The largest magnitude of a setting and of a learning rate. Formulas multiply two of them, with
/// numbers of a tile's lines and of standard deviations; that stays within single precision.
constexpr double kLargestSetting = 1e15;

}  // namespace pulsora
