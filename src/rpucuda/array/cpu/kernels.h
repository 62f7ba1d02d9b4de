#pragma once

#include "array/cpu/batch.h"
#include "array/cpu/dense.h"
#include "array/cpu/sparse.h"
#include "array/cell_events.h"

// The CPU kernels of a device model, compiled once per instruction set from this one text. Lanes
// are kBlock neighbouring cells; every loop over lanes is free of branches and calls, so that the
// compiler turns it into vector code. The steps themselves are those of devices/pulse_rule.h.
//
// A translation unit that includes this header is compiled with -march flags of its own: it must
// not instantiate anything that other units could share (std:: containers, non-inlined functions),
// hence the raw pointers and the ISA parameter.

namespace RPU {

/// The kernels of `Device` for `isa`; instantiated by one generated source file per pair.
template <class Device, Isa isa>
const PulsedKernels &cpuKernels();

namespace cpu {

template <Isa isa, class Device>
struct Kernels {
  using Params = typename Device::Params;
  using Cell = typename Device::Cell;
  using Response = typename Device::Response;
  static constexpr int kCellMembers = sizeof(Cell) / sizeof(float);
  static constexpr int kResponseMembers = sizeof(Response) / sizeof(float);

  static const Params &paramsOf(const CellArray &a) {
    return *static_cast<const Params *>(a.params);
  }

  // --- cells
  // -----------------------------------------------------------------------------------------------------

  static void construct(const CellArray &a, uint16_t *cells, int64_t begin, int64_t end, void *) {
    const Params &p = paramsOf(a);
    const int64_t plane = a.size();
    for (int64_t i = begin; i < end; ++i) {
      CellDraws draws(a.key, static_cast<uint64_t>(i));
      Cell cell = Device::construct(p, draws, i % a.cols == a.cols - 1);
      int64_t at = i;
      cell.members([&](const char *, float &value) {
        cells[at] = floatToHalf(value);
        at += plane;
      });
    }
  }

  static RPU_HD Response responseOf(const CellArray &a, const Params &p, int64_t i) {
    Cell cell;
    const int64_t plane = a.size();
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      value = halfToFloat(a.cells[at]);
      at += plane;
    });
    return Device::response(cell, p);
  }

  // --- updates
  // -----------------------------------------------------------------------------------------------------

  /// Calls step(block) for the cells [begin, end), a block at a time, and adds up what it returns.
  template <class Step>
  static RPU_HD uint64_t overBlocks(const CellArray &a, int64_t begin, int64_t end,
                                    const Step &step) {
    const Params p = paramsOf(a);
    uint64_t pulses = 0;
    for (int64_t first = begin; first < end;) {
      // Wide arrays are cut at the ends of rows, so that a block has one d line and neighbouring x
      // lines.
      const int64_t rowEnd = a.cols >= kBlock ? (first / a.cols + 1) * a.cols : end;
      int64_t last = first + kBlock;
      last = last < rowEnd ? last : rowEnd;
      last = last < end ? last : end;
      Block<isa, Device> block(a, p, first, static_cast<int>(last - first));
      pulses += step(block);
      first = last;
    }
    return pulses;
  }

  static void update(const CellArray &a, const PulseWords &words, uint64_t *coincidences,
                     int64_t begin, int64_t end, void *) {
    uint64_t pulses = 0;
    if constexpr (kMergesNoise<Device>) {
      pulses = paramsOf(a).noise_merge == NoiseMerge::Batch ? updateAtOnce(a, words, begin, end)
                                                            : updateBySample(a, words, begin, end);
    } else {
      pulses = updateBySample(a, words, begin, end);
    }
    __atomic_fetch_add(coincidences, pulses, __ATOMIC_RELAXED);
  }

  static uint64_t updateBySample(const CellArray &a, const PulseWords &words, int64_t begin,
                                 int64_t end) {
    using Cells = Block<isa, Device>;
    constexpr int kSparseSlots = 4;  // up to here most samples leave most cells alone
    const int slots = words.layout->slots;
    if (words.kind > PulseKind::TwoPass)
      return overBlocks(a, begin, end, [&](Cells &b) { return updateLevels(b, a.key, words); });
    if (slots == 1)
      return overBlocks(a, begin, end,
                        [&](Cells &b) { return updateSparse<true>(b, a.key, words); });
    if (slots <= kSparseSlots)
      return overBlocks(a, begin, end,
                        [&](Cells &b) { return updateSparse<false>(b, a.key, words); });
    return overBlocks(a, begin, end, [&](Cells &b) { return updateDense(b, a.key, words); });
  }

  static uint64_t updateAtOnce(const CellArray &a, const PulseWords &words, int64_t begin,
                               int64_t end) {
    const Params p = paramsOf(a);
    ScatteredCells<isa, Device> aside(a, p);
    const uint64_t pulses = overBlocks(
        a, begin, end, [&](Block<isa, Device> &b) { return updateMerged(b, a.key, words, aside); });
    aside.run(words);
    return pulses;
  }

  // --- everything else, cell by cell
  // ---------------------------------------------------------------------------------

  static void write(const CellArray &a, MatrixView<const float> from, int64_t begin, int64_t end,
                    void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) {
      const float value = from.data ? from(i / a.cols, i % a.cols) + 0.0f : a.weights[i];
      a.weights[i] = clipWeight(value, responseOf(a, p, i));
    }
  }

  static void describe(const CellArray &a, float *out, int64_t begin, int64_t end, void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i)
      describeCell<Device>(a.weights[i], responseOf(a, p, i), p, out + i, a.size());
  }

  static void relax(const CellArray &a, const Relaxation &event, int64_t begin, int64_t end,
                    void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) {
      a.weights[i] = relaxedWeight(a.weights[i], responseOf(a, p, i), p, event, a.key, i);
    }
  }

  static void reset(const CellArray &a, const ResetEvent &event, int64_t begin, int64_t end,
                    void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) {
      a.weights[i] = resetWeight(a.weights[i], responseOf(a, p, i), p, event, a.key, i, a.cols);
    }
  }
};

}  // namespace cpu

template <class Device, Isa isa>
const PulsedKernels &cpuKernels() {
  using K = cpu::Kernels<isa, Device>;
  static constexpr PulsedKernels kTable = {&K::construct, &K::update, nullptr,  &K::describe,
                                           &K::relax,     &K::reset,  &K::write};
  return kTable;
}

}  // namespace RPU
