#pragma once

#include <cstdint>

#include "linalg/integers.h"

// The factors and the sums of a product of integers on a GPU.

namespace pulsora {

/// Converted inputs as the tensor cores take them, on a GPU: each level one byte with a sign, or a
/// byte without and one with a sign, in two planes.
struct LevelBytes {
  uint8_t *data;
  int64_t pitch;  ///< distance of rows, a multiple of 16; 0 after the last input
  int64_t plane;  ///< distance of the planes; 0: one plane

  PULSORA_HD void put(int64_t row, int64_t j, float level) const {
    const auto n = static_cast<int32_t>(level);
    uint8_t *byte = data + row * pitch + j;
    *byte = static_cast<uint8_t>(n);
    if (plane > 0) byte[plane] = static_cast<uint8_t>(n >> 8);
  }
  /// Puts four neighbours; j is a multiple of 4.
  PULSORA_HD void putFour(int64_t row, int64_t j, const float (&levels)[4]) const {
    uint32_t low = 0;
    uint32_t high = 0;
    for (int i = 0; i < 4; ++i) {
      const auto n = static_cast<uint32_t>(static_cast<int32_t>(levels[i]));
      low |= (n & 0xFFU) << (8 * i);
      high |= (n >> 8 & 0xFFU) << (8 * i);
    }
    auto *word = reinterpret_cast<uint32_t *>(data + row * pitch + j);
    *word = low;
    if (plane > 0) word[plane / 4] = high;
  }
  /// Writes the zeros behind the `inputs` of a row.
  PULSORA_HD void end(int64_t row, int64_t inputs) const {
    for (int64_t j = inputs; j < pitch; ++j) put(row, j, 0.0f);
  }
};

/// Scratch memory of cudaDigitBytes() for the bytes of weights; 0 bytes: none.
struct DigitMemory {
  uint8_t *data = nullptr;
  int64_t bytes = 0;
};

/// The results of a product of integers: values in `sums`, or exact sums of its parts.
struct IntegerSums {
  float *sums;       // [rows, lines]
  int64_t *partial;  // [parts, rows, lines]; for several parts
  int64_t parts;
  float unit;
  bool joined;  // whether several parts are added up, to `sums`
  DigitMemory digits = {};
};

/// Element i of the sums from its parts.
struct JoinParts {
  IntegerSums s;
  int64_t size;

  PULSORA_HD static int64_t total(const IntegerSums &s, int64_t size, int64_t i) {
    int64_t sum = 0;
    for (int64_t part = 0; part < s.parts; ++part) sum += s.partial[part * size + i];
    return sum;
  }
  PULSORA_HD void operator()(int64_t i) const { s.sums[i] = valueOf(total(s, size, i), s.unit); }
};

}  // namespace pulsora
