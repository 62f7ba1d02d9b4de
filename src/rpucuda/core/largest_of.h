#pragma once

#include "core/lane_copy.h"
#include "core/math.h"
#include "core/view.h"

// The largest magnitude of a row, in translation units compiled per instruction set.

namespace RPU {

/// Largest magnitudes in the lanes of a vector; what is no number does not count.
struct Largest {
  float part[kVectorLanes] = {};

  RPU_HD void add(const float *values) {
    for (int l = 0; l < kVectorLanes; ++l) part[l] = RPU::max(part[l], RPU::abs(values[l]));
  }
  RPU_HD float joined() {
    for (int half = kVectorLanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) part[l] = RPU::max(part[l], part[l + half]);
    }
    return part[0];
  }
};

/// The same by the bits of magnitudes, which as integers have their order, with what is no number
/// above all others.
struct LargestBits {
  int32_t part[kVectorLanes] = {};

  RPU_HD void add(const float *values) {
    for (int l = 0; l < kVectorLanes; ++l) {
      const auto bits = static_cast<int32_t>(bitCast<uint32_t>(values[l]) & 0x7FFFFFFFU);
      part[l] = RPU::max(part[l], bits);
    }
  }
  RPU_HD float joined() {
    for (int half = kVectorLanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) part[l] = RPU::max(part[l], part[l + half]);
    }
    return bitCast<float>(static_cast<uint32_t>(part[0]));
  }
};

/// The largest magnitude of a row, 0 for an empty one, by one of the two above.
template <class Reduction>
RPU_HD float largestOf(VectorView<const float> row) {
  Reduction largest;
  float values[kVectorLanes] = {};
  if (row.stride != 1) {
    for (int64_t j = 0; j < row.size; ++j) {
      values[0] = row[j];
      largest.add(values);
    }
    return largest.joined();
  }
  int64_t j = 0;
  for (; j + kVectorLanes <= row.size; j += kVectorLanes) largest.add(row.data + j);
  if (j < row.size) {
    loadLanesOf(values, row.data + j, static_cast<int>(row.size - j));
    largest.add(values);
  }
  return largest.joined();
}

}  // namespace RPU
