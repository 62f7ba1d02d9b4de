#include "array/visible_weights.h"
#include "numerics/philox_batch.h"

namespace pulsora {
namespace {

/// normalOfSample() of neighbouring cells.
PULSORA_HD void drawWriteNoise(const VisibleWeight &cell, int64_t first,
                               float (&xi)[kPhiloxBatch]) {
  PhiloxBatch batch;
  drawBatch(cell.key, Purpose::WriteNoise, static_cast<uint32_t>(first), cell.event >> 3, 0, batch);
  const uint32_t *words = batch.words[cell.event >> 1 & 3U];
  const bool second = (cell.event & 1U) != 0;
  for (int k = 0; k < kPhiloxBatch; ++k) {
    const NormalPair pair = normalPair16(words[k]);
    xi[k] = second ? pair.z1 : pair.z0;
  }
}

}  // namespace

template <>
void makeVisible<Isa::PULSORA_ISA>(const VisibleWeight &cells, int64_t begin, int64_t end) {
  if (cells.fault && *cells.fault) return;
  const VisibleWeight cell = cells;  // a local copy, which writes do not change
  float xi[kPhiloxBatch] = {};
  for (int64_t first = begin; first < end; first += kPhiloxBatch) {
    if (cell.scale > 0.0f) drawWriteNoise(cell, first, xi);
    const int64_t left = end - first;
    const int64_t count = left < kPhiloxBatch ? left : kPhiloxBatch;
    for (int64_t k = 0; k < count; ++k) cell.set(first + k, xi[k]);
  }
}

}  // namespace pulsora
