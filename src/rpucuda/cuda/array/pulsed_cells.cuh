#pragma once

#include "array/cell_events.h"
#include "cuda/array/batch_update.cuh"
#include "cuda/array/pulsed_update.cuh"

// What happens to cells besides pulses (array/cell_events.h), and the table of a model's kernels. A
// thread treats one cell.

namespace RPU {

/// The kernels of `Device`; instantiated by one generated source file per model.
template <class Device>
const PulsedKernels &cudaKernels();

namespace gpu {

constexpr int kCellThreads = 256;

/// Calls work(array, i) for the cells [begin, end).
template <class Device, class Work>
__global__ void __launch_bounds__(kCellThreads)
    cellsKernel(Array<Device> array, Work work, int64_t begin, int64_t end) {
  awaitEarlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kCellThreads;
  for (int64_t i = begin + static_cast<int64_t>(blockIdx.x) * kCellThreads + threadIdx.x; i < end;
       i += stride) {
    work(array, i);
  }
}

template <class Device>
struct Kernels {
  template <class Work>
  static void overCells(const Array<Device> &array, const Work &work, int64_t begin, int64_t end,
                        void *stream) {
    if (begin >= end) return;
    launch(stream, cellsKernel<Device, Work>, gridFor(end - begin, kCellThreads), kCellThreads, 0,
           array, work, begin, end);
  }

  static void construct(const SampledCells &array, uint16_t *cells, int64_t begin, int64_t end,
                        void *stream) {
    overCells(Array<Device>::of(array), ConstructCell<Device>{cells}, begin, end, stream);
  }
  static void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                     int64_t begin, int64_t end, void *stream) {
    if constexpr (kMergesNoise<Device>) {
      gpu::mergeOrUpdate<Device>(array, words, coincidences, begin, end, stream);
    } else {
      gpu::update<Device>(array, words, coincidences, begin, end, stream);
    }
  }
  static void describe(const SampledCells &array, const float *weights, float *out, int64_t begin,
                       int64_t end, void *stream) {
    overCells(Array<Device>::of(array), DescribeCell<Device>{weights, out}, begin, end, stream);
  }
  static void relax(const CellArray &array, const Relaxation &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells(Array<Device>::of(array), RelaxCell{event}, begin, end, stream);
  }
  static void reset(const CellArray &array, const ResetEvent &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells(Array<Device>::of(array), ResetCell{event}, begin, end, stream);
  }
  static void write(const CellArray &array, MatrixView<const float> from, int64_t begin,
                    int64_t end, void *stream) {
    overCells(Array<Device>::of(array), WriteCell{from}, begin, end, stream);
  }
};

}  // namespace gpu

template <class Device>
const PulsedKernels &cudaKernels() {
  using K = gpu::Kernels<Device>;
  static constexpr PulsedKernels kTable = {&K::construct, &K::update, &gpu::updateTogether<Device>,
                                           &K::describe,  &K::relax,  &K::reset,
                                           &K::write};
  return kTable;
}

}  // namespace RPU
