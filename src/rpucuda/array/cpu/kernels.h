#pragma once

#include "array/cell_events.h"
#include "array/cpu/batch.h"
#include "array/cpu/dense.h"
#include "array/cpu/lines.h"
#include "array/cpu/program.h"
#include "array/cpu/sparse.h"
#include "array/cpu/taps.h"
#include "array/line_events.h"

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

/// The first draws of kPhiloxBatch neighbouring cells (CellDraws).
template <Isa isa>
struct CellBatch {
  static constexpr uint32_t kMost = 4;  // blocks of two draws; more are drawn cell by cell

  uint32_t blocks = 0;
  float normals[2 * kMost][kPhiloxBatch] = {};
  float uniforms[2 * kMost][kPhiloxBatch] = {};

  PULSORA_HD void draw(RandomKey key, uint32_t first) {
    PhiloxBatch batch;
    for (uint32_t b = 0; b < blocks; ++b) {
      drawBatch(key, Purpose::Construct, first, 0, b, batch);
      for (int k = 0; k < kPhiloxBatch; ++k) {
        const NormalPair pair = normalPair(batch.words[0][k], batch.words[1][k]);
        normals[2 * b][k] = pair.z0;
        normals[2 * b + 1][k] = pair.z1;
        uniforms[2 * b][k] = uniform(batch.words[2][k]);
        uniforms[2 * b + 1][k] = uniform(batch.words[3][k]);
      }
    }
  }
  PULSORA_HD DrawsMade of(int64_t cell) const {
    return {&normals[0][cell], &uniforms[0][cell], 2 * blocks, kPhiloxBatch};
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

  /// Samples cells, with the draws of kPhiloxBatch neighbours in vectors.
  static void construct(const SampledCells &a, uint16_t *cells, int64_t begin, int64_t end,
                        void *) {
    if (begin >= end) return;
    const Array<Device> array = Array<Device>::of(a);
    const ConstructCell<Device> work{cells};
    CellDraws trial(array.key, static_cast<uint64_t>(begin));
    static_cast<void>(Device::construct(array.params, trial, false));
    CellBatch<isa> batch;
    batch.blocks = pulsora::min((trial.used() + 1) / 2, CellBatch<isa>::kMost);
    int64_t column = begin % array.cols;
    for (int64_t first = begin; first < end; first += kPhiloxBatch) {
      batch.draw(array.key, static_cast<uint32_t>(first));
      const int64_t left = end - first;
      const int64_t count = left < kPhiloxBatch ? left : kPhiloxBatch;
      for (int64_t k = 0; k < count; ++k) {
        const bool isLast = column == array.cols - 1;
        work.sample(array, first + k, isLast, batch.of(k));
        column = isLast ? 0 : column + 1;
      }
    }
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
    const Array<Device> array = Array<Device>::of(a);
    if (!from.data) return overCells(array, WriteCell{from}, begin, end);
    for (int64_t i = begin; i < end;) {  // row by row, so that no element needs a division
      const int64_t row = i / from.cols;
      const int64_t first = row * from.cols;
      const int64_t last = pulsora::min(first + from.cols, end);
      const float *wanted = from.data + row * from.rowStride;
      for (; i < last; ++i)
        array.weights[i] = writtenWeight(wanted[(i - first) * from.colStride], array.response(i));
    }
  }

  // --- cells of visited lines

  static void pulseLines(const CellArray &a, const LinePulses &pulses, uint64_t *sent,
                         int64_t begin, int64_t end, void *) {
    if (pulses.digital)
      return overCells(Array<Device>::of(a), PulseLine<Device>{pulses}, begin, end);
    const uint64_t count = pulseElements<isa, Device>(a, pulses, begin, end);
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
    programCells<isa, Device>(a, program, sent, begin, end);
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
