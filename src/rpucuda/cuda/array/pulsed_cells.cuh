#pragma once

#include "cuda/array/batch_update.cuh"
#include "cuda/array/pulsed_update.cuh"
#include "array/cell_events.h"

// What happens to cells besides pulses, and the table of a model's kernels. A thread treats one
// cell.

namespace RPU {

/// The kernels of `Device`; instantiated by one generated source file per model.
template <class Device>
const PulsedKernels &cudaKernels();

namespace gpu {

constexpr int kCellThreads = 256;

/// Work is work(array, cell index).
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
struct ConstructCell {
  uint16_t *cells;

  __device__ void operator()(const Array<Device> &a, int64_t i) const {
    CellDraws draws(a.key, static_cast<uint64_t>(i));
    typename Device::Cell cell = Device::construct(a.params, draws, i % a.cols == a.cols - 1);
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      cells[at] = floatToHalf(value);
      at += a.size();
    });
  }
};

template <class Device>
struct DescribeCell {
  float *out;

  __device__ void operator()(const Array<Device> &a, int64_t i) const {
    describeCell<Device>(a.weights[i], a.response(i), a.params, out + i, a.size());
  }
};

template <class Device>
struct RelaxCell {
  Relaxation event;

  __device__ void operator()(const Array<Device> &a, int64_t i) const {
    a.weights[i] = relaxedWeight(a.weights[i], a.response(i), a.params, event, a.key, i);
  }
};

template <class Device>
struct ResetCell {
  ResetEvent event;

  __device__ void operator()(const Array<Device> &a, int64_t i) const {
    a.weights[i] = resetWeight(a.weights[i], a.response(i), a.params, event, a.key, i, a.cols);
  }
};

template <class Device>
struct WriteCell {
  MatrixView<const float> from;

  __device__ void operator()(const Array<Device> &a, int64_t i) const {
    const float value = from.data ? from(i / a.cols, i % a.cols) + 0.0f : a.weights[i];
    a.weights[i] = clipWeight(value, a.response(i));
  }
};

template <class Device>
struct Kernels {
  template <class Work>
  static void overCells(const CellArray &array, const Work &work, int64_t begin, int64_t end,
                        void *stream) {
    if (begin >= end) return;
    launch(stream, cellsKernel<Device, Work>, gridFor(end - begin, kCellThreads), kCellThreads, 0,
           Array<Device>::of(array), work, begin, end);
  }

  static void construct(const CellArray &array, uint16_t *cells, int64_t begin, int64_t end,
                        void *stream) {
    overCells(array, ConstructCell<Device>{cells}, begin, end, stream);
  }
  static void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                     int64_t begin, int64_t end, void *stream) {
    if constexpr (kMergesNoise<Device>) {
      gpu::mergeOrUpdate<Device>(array, words, coincidences, begin, end, stream);
    } else {
      gpu::update<Device>(array, words, coincidences, begin, end, stream);
    }
  }
  static bool mergesNoise(const CellArray &array) {
    return kMergesNoise<Device> && Array<Device>::of(array).params.noise_merge == NoiseMerge::Batch;
  }
  static void updateTwo(const PulsedUpdate &one, const PulsedUpdate &other, void *stream) {
    if (mergesNoise(one.array) || mergesNoise(other.array)) {
      for (const PulsedUpdate &each : {one, other})
        update(each.array, each.words, each.coincidences, 0, each.array.size(), stream);
    } else {
      gpu::updateTwo<Device>(one, other, stream);
    }
  }
  static void describe(const CellArray &array, float *out, int64_t begin, int64_t end,
                       void *stream) {
    overCells(array, DescribeCell<Device>{out}, begin, end, stream);
  }
  static void relax(const CellArray &array, const Relaxation &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells(array, RelaxCell<Device>{event}, begin, end, stream);
  }
  static void reset(const CellArray &array, const ResetEvent &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells(array, ResetCell<Device>{event}, begin, end, stream);
  }
  static void write(const CellArray &array, MatrixView<const float> from, int64_t begin,
                    int64_t end, void *stream) {
    overCells(array, WriteCell<Device>{from}, begin, end, stream);
  }
};

}  // namespace gpu

template <class Device>
const PulsedKernels &cudaKernels() {
  using K = gpu::Kernels<Device>;
  static constexpr PulsedKernels kTable = {&K::construct, &K::update, &K::updateTwo, &K::describe,
                                           &K::relax,     &K::reset,  &K::write};
  return kTable;
}

}  // namespace RPU
