#pragma once

#include <cstdint>

namespace pulsora {

/// A state of a programmed device: which programming, and when it is read.
struct ProgrammedPoint {
  uint64_t number = 0;  ///< of the programming; each draws programming errors of its own
  double time = 0.0;    ///< seconds since the end of programming
  uint64_t redraw = 0;  ///< of the reading at that time; each draws read noise of its own
  uint64_t chip = 0;    ///< of the chip; each has stuck devices, converters and errors of its own
};

/// The largest numbers of a ProgrammedPoint: coordinates of random draws.
constexpr uint64_t kMostProgrammings = (uint64_t{1} << 47) - 1;
/// Programming with which the noise model modifies weights in the training read of a number.
constexpr uint64_t modifierProgramming(uint64_t number) { return kMostProgrammings + 1 + number; }
constexpr uint64_t kMostRedraws = (uint64_t{1} << 32) - 1;
constexpr uint64_t kMostChips = (uint64_t{1} << 32) - 1;
/// The most points that one read sees.
constexpr int64_t kMostPoints = int64_t{1} << 16;

}  // namespace pulsora
