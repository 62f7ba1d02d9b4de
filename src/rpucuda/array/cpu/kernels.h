#pragma once

#include "array/cell_events.h"
#include "array/cpu/batch.h"
#include "array/cpu/dense.h"
#include "array/cpu/sparse.h"
#include "array/cpu/taps.h"
#include "array/line_events.h"
#include "array/program_cells.h"

// The CPU kernels of a device model, compiled once per instruction set from this one text. Lanes
// are kBlock neighbouring cells; every loop over lanes is free of branches and calls, so that the
// compiler turns it into vector code. The steps themselves come from devices/pulse_rule.h.
//
// A translation unit that includes this header is compiled with -march flags of its own: it must
// not instantiate anything that other units could share (std:: containers, non-inlined functions),
// hence the raw pointers and the ISA parameter.

namespace pulsora {

/// The kernels of `Device` for `isa`; instantiated by one generated source file per pair.
template <class Device, Isa isa>
const PulsedKernels &cpuKernels();

namespace cpu {

/// An array for the work of array/cell_events.h.
template <class Device>
struct Array {
  int64_t rows;
  int64_t cols;
  float *weights;
  const uint16_t *cells;
  RandomKey key;
  typename Device::Params params;

  static PULSORA_HD Array of(const SampledCells &a, float *weights = nullptr) {
    return {a.rows, a.cols, weights, a.cells, a.key, paramsOf<typename Device::Params>(*a.params)};
  }
  static PULSORA_HD Array of(const CellArray &a) { return of(a, a.weights); }
  PULSORA_HD int64_t size() const { return rows * cols; }
  PULSORA_HD typename Device::Response response(int64_t i) const {
    typename Device::Cell cell;
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      value = halfToFloat(cells[at]);
      at += size();
    });
    return Device::response(cell, params);
  }
};

template <Isa isa, class Device>
struct Kernels {
  using Params = typename Device::Params;

  // --- updates

  /// Calls step(block) for the cells [begin, end), a block at a time, and adds up the results.
  template <class Step>
  static PULSORA_HD uint64_t overBlocks(const CellArray &a, int64_t begin, int64_t end,
                                        const Step &step) {
    const Params p = paramsOf<Params>(*a.params);
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
      pulses = a.params->noise_merge == NoiseMerge::Batch ? updateAtOnce(a, words, begin, end)
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
    const bool sparse = !hasLevels(words.kind) && slots <= kSparseSlots;
    if (sparse && slots == 1)
      return overBlocks(a, begin, end,
                        [&](Cells &b) { return updateSparse<true>(b, a.key, words); });
    if (sparse)
      return overBlocks(a, begin, end,
                        [&](Cells &b) { return updateSparse<false>(b, a.key, words); });
    return overBlocks(a, begin, end, [&](Cells &b) { return updateDense(b, a.key, words); });
  }

  static uint64_t updateAtOnce(const CellArray &a, const PulseWords &words, int64_t begin,
                               int64_t end) {
    const Params p = paramsOf<Params>(*a.params);
    DeferredCells<isa, Device> deferred(a, p);
    uint64_t pulses = 0;
    if constexpr (kMergesInOrder<Device>) {
      pulses = withKindOfNoise(p, [&](auto multiplicative) {
        return overBlocks(a, begin, end, [&](Block<isa, Device> &b) {
          return updateInOrder<decltype(multiplicative)::value>(b, a.key, p, words, deferred);
        });
      });
    } else {
      pulses = overBlocks(a, begin, end, [&](Block<isa, Device> &b) {
        return updateMerged(b, a.key, words, deferred);
      });
    }
    deferred.run(words);
    return pulses;
  }

  // --- everything else, cell by cell

  template <class Work>
  static PULSORA_HD void overCells(const Array<Device> &a, const Work &work, int64_t begin,
                                   int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(a, i);
  }

  static void construct(const SampledCells &a, uint16_t *cells, int64_t begin, int64_t end,
                        void *) {
    overCells(Array<Device>::of(a), ConstructCell<Device>{cells}, begin, end);
  }
  static void describe(const SampledCells &a, const float *weights, float *out, int64_t begin,
                       int64_t end, void *) {
    overCells(Array<Device>::of(a), DescribeCell<Device>{weights, out}, begin, end);
  }
  static void balance(const SampledCells &a, int64_t pairs, float *points, int64_t begin,
                      int64_t end, void *) {
    overCells(Array<Device>::of(a), BalanceCell<Device>{pairs, points}, begin, end);
  }
  static void relax(const CellArray &a, const Relaxation &event, int64_t begin, int64_t end,
                    void *) {
    overCells(Array<Device>::of(a), RelaxCell{event}, begin, end);
  }
  static void reset(const CellArray &a, const ResetEvent &event, int64_t begin, int64_t end,
                    void *) {
    overCells(Array<Device>::of(a), ResetCell{event}, begin, end);
  }
  static void write(const CellArray &a, MatrixView<const float> from, int64_t begin, int64_t end,
                    void *) {
    overCells(Array<Device>::of(a), WriteCell{from}, begin, end);
  }

  // --- cells of visited lines

  static void pulseLines(const CellArray &a, const LinePulses &pulses, uint64_t *sent,
                         int64_t begin, int64_t end, void *) {
    const Array<Device> array = Array<Device>::of(a);
    const PulseLine<Device> work{pulses};
    uint64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += work(array, i);
    __atomic_fetch_add(sent, count, __ATOMIC_RELAXED);
  }
  static void tapLines(const CellArray &a, const LineTaps &taps, int64_t begin, int64_t end,
                       void *) {
    if (taps.columns || taps.finals) {
      overCells(Array<Device>::of(a), TapLine<Device>{taps}, begin, end);
    } else {
      tapRows<isa, Device>(a, taps, begin, end);
    }
  }

  static void program(const CellArray &a, const CellProgram &program, uint64_t *sent, int64_t begin,
                      int64_t end, void *) {
    const Array<Device> array = Array<Device>::of(a);
    const ProgramCell<Device> work{program};
    ProgramCounts mine{};
    uint64_t pulses = 0;
    for (int64_t i = begin; i < end; ++i) pulses += work(array, i, mine);
    __atomic_fetch_add(sent, pulses, __ATOMIC_RELAXED);
    mine.addTo(program.counts);
  }
};

}  // namespace cpu

template <class Device, Isa isa>
const PulsedKernels &cpuKernels() {
  using K = cpu::Kernels<isa, Device>;
  static constexpr PulsedKernels kTable = {&K::construct,  &K::update,   nullptr,    &K::describe,
                                           &K::balance,    &K::relax,    &K::reset,  &K::write,
                                           &K::pulseLines, &K::tapLines, &K::program};
  return kTable;
}

}  // namespace pulsora
