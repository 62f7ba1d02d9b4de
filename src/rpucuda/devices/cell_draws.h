#pragma once

#include <cstdint>

#include "numerics/random.h"

namespace pulsora {

/// The first random draws of a cell, made before: draw n is normals[n * stride] as a normal and
/// uniforms[n * stride] as a uniform number.
struct DrawsMade {
  const float *normals = nullptr;
  const float *uniforms = nullptr;
  uint32_t count = 0;
  uint32_t stride = 0;
};

/// The random draws that make one cell, in a fixed order.
class CellDraws {
 public:
  PULSORA_HD CellDraws(RandomKey key, uint64_t cell, const DrawsMade &made = {})
      : key_(key), cell_(cell), made_(made) {}
  /// Draws of a cell without spread: every normal is 0, and the cell is not stuck.
  static CellDraws withoutSpread() {
    CellDraws draws({}, 0);
    draws.spread_ = false;
    return draws;
  }

  /// The next standard normal.
  PULSORA_HD float normal() {
    if (!spread_) return 0.0f;
    const uint32_t index = used_++;
    if (index < made_.count) return made_.normals[index * made_.stride];
    const Philox4 block = draw(key_, Purpose::Construct, cell_, 0, index >> 1);
    const NormalPair pair = normalPair(block.v[0], block.v[1]);
    return (index & 1) ? pair.z1 : pair.z0;
  }
  /// The next standard normal as the deviation of a value with spread `dtod`; 0 if the spread is 0.
  PULSORA_HD float deviation(float dtod) {
    const float xi = normal();
    return dtod > 0.0f ? xi : 0.0f;
  }
  /// The next number uniform in [0, 1).
  PULSORA_HD float uniformNumber() {
    if (!spread_) return 1.0f;
    const uint32_t index = used_++;
    if (index < made_.count) return made_.uniforms[index * made_.stride];
    return uniform(draw(key_, Purpose::Construct, cell_, 0, index >> 1).v[2 + (index & 1)]);
  }

  /// The number of draws so far.
  PULSORA_HD uint32_t used() const { return used_; }

 private:
  RandomKey key_;
  uint64_t cell_;
  DrawsMade made_;
  uint32_t used_ = 0;
  bool spread_ = true;
};

}  // namespace pulsora
