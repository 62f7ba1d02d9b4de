#pragma once

#include "core/platform.h"
#include "noise_models/noise_model.h"
#include "numerics/math.h"
#include "parameters/field_types.h"
#include "periphery/one_hot_read.h"

namespace pulsora {

/// The converters of the slices of a weight: of each its own, or one for their sum.
enum class SliceConverters { Apart, Shared };
template <>
struct EnumNames<SliceConverters> {
  static constexpr const char *kNames[] = {"apart", "shared"};
};

/// A weight w in [-1, 1] in parts, each of which is an array of its own. Digits: rint(|w| steps) =
/// sum_k digit_k 2^(bits k), each with the sign of w, in a slice; slice 0 is the least significant.
/// Of a table: two devices, whose difference is steps w.
struct WeightParts {
  int bits = 0;          ///< of a digit; 0: the parts are the devices of a table
  int count = 0;         ///< 0: weights are one part
  float steps = 1.0f;    ///< the integer of the weight 1
  float largest = 1.0f;  ///< the largest digit

  /// The digit of a weight in slice k, relative to the largest digit.
  PULSORA_HD float share(float w, int k) const {
    const auto whole = static_cast<uint32_t>(pulsora::rint(pulsora::abs(w) * steps));
    const uint32_t digit = (whole >> (bits * k)) & ((uint32_t{1} << bits) - 1);
    return pulsora::copySign(static_cast<float>(digit) / largest, w);
  }
  /// The number that a part of 1 adds to w steps.
  float significance(int k) const {
    if (bits == 0) return k == 0 ? 1.0f : -1.0f;
    return static_cast<float>(uint32_t{1} << (bits * k)) * largest;
  }
  /// The weight of a part of 1.
  float factor(int k) const { return significance(k) / steps; }
};

/// Digits of `sliceBits` bits, as many as the magnitude of a signed integer of `weightBits` has.
inline WeightParts weightDigits(int weightBits, int sliceBits) {
  WeightParts digits;
  digits.bits = sliceBits;
  digits.count = (weightBits - 1 + sliceBits - 1) / sliceBits;
  digits.steps = static_cast<float>((1 << (weightBits - 1)) - 1);
  digits.largest = static_cast<float>((1 << sliceBits) - 1);
  return digits;
}

/// Two devices of a table, whose difference is `whole` for the weight 1.
inline WeightParts tableParts(float whole) {
  WeightParts devices;
  devices.count = 2;
  devices.steps = whole;
  return devices;
}

/// to[i] = the target of device k for the weight from[i], between the nodes of a table.
struct TableTaker {
  FloatList weights;
  FloatList targets;
  int k;
  const float *from;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    to[i] = valueAt(targets, placeOf(weights, from[i]), k * weights.count);
  }
};

/// to[i] = the digit of from[i] in slice k.
struct DigitTaker {
  WeightParts digits;
  int k;
  const float *from;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = digits.share(from[i], k); }
};

/// to[i] = (to[i] + factor part[i]) / over, where the first part begins at 0.
struct DigitAdder {
  const float *part;
  float factor;
  float over;
  bool first;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    to[i] = ((first ? 0.0f : to[i]) + factor * part[i]) / over;
  }
};

/// to(i, j) += factor part(i, j), where the first part begins at 0.
struct ReadAdder {
  MatrixView<const float> part;
  float factor;
  bool first;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const { add(i / to.cols, i % to.cols); }
  void row(int64_t i) const {
    for (int64_t j = 0; j < to.cols; ++j) add(i, j);
  }

 private:
  PULSORA_HD void add(int64_t i, int64_t j) const {
    to(i, j) = (first ? 0.0f : to(i, j)) + factor * part(i, j);
  }
};

/// to(i, j) += factor times the reading of output i for input j, likewise.
struct OneHotAdder {
  OneHotRead read;
  float factor;
  bool first;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const { add(i / to.cols, i % to.cols); }
  void row(int64_t i) const {
    for (int64_t j = 0; j < to.cols; ++j) add(i, j);
  }

 private:
  PULSORA_HD void add(int64_t i, int64_t j) const {
    to(i, j) = (first ? 0.0f : to(i, j)) + factor * read(i, j);
  }
};

}  // namespace pulsora
