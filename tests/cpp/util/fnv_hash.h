#pragma once

#include <cstdint>

#include "numerics/math.h"

// 64-bit FNV-1a over the bits of values: one constant in a test then pins every bit of a long
// sequence, on every compiler and instruction set.
class FnvHash {
 public:
  void add(uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash_ = (hash_ ^ ((word >> shift) & 0xFFU)) * 0x100000001B3U;
    }
  }
  void add(float x) { add(pulsora::bitCast<uint32_t>(x)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325U;
};
