#pragma once

#include <cstdint>

#include "core/isa.h"
#include "lowrank/element.h"

namespace pulsora {

/// Conversions of adjacent elements on the CPU, compiled once per instruction set
/// (element_rows_isa.cpp), with equal bits on each.
struct ElementRows {
  void (*widenHalves)(const Half *from, float *to, int64_t count);
  void (*widenBFloats)(const BFloat16 *from, float *to, int64_t count);
  void (*narrowHalves)(const float *sum, const Half *base, Half *to, int64_t count);
  void (*narrowBFloats)(const float *sum, const BFloat16 *base, BFloat16 *to, int64_t count);

  /// to = from.
  void widen(const float *from, float *to, int64_t count) const {
    for (int64_t j = 0; j < count; ++j) to[j] = from[j];
  }
  void widen(const Half *from, float *to, int64_t count) const { widenHalves(from, to, count); }
  void widen(const BFloat16 *from, float *to, int64_t count) const {
    widenBFloats(from, to, count);
  }
  /// to = base + sum, rounded once, or sum if `base` is null; `base` may be `to`.
  void narrow(const float *sum, const Half *base, Half *to, int64_t count) const {
    narrowHalves(sum, base, to, count);
  }
  void narrow(const float *sum, const BFloat16 *base, BFloat16 *to, int64_t count) const {
    narrowBFloats(sum, base, to, count);
  }
};

template <Isa>
const ElementRows &elementRows();
template <>
const ElementRows &elementRows<Isa::V2>();
template <>
const ElementRows &elementRows<Isa::V3>();
template <>
const ElementRows &elementRows<Isa::V4>();
template <>
const ElementRows &elementRows<Isa::V4Popcnt>();

/// The conversions for `isa`.
const ElementRows &elementRowsFor(Isa isa);

}  // namespace pulsora
