#include <algorithm>
#include <cmath>
#include <mutex>

#include "array/cell_kernels.h"
#include "array/pulsed_device.h"
#include "core/backend.h"
#include "numerics/abs_max.h"
#include "numerics/cuda_numerics.h"

// What cells are: their bounds, steps and symmetric points.

namespace pulsora {
namespace {

double largestOf(const float *values, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return double(largest);
}

// The largest magnitude of a matrix without gaps. On the CPU without memory of its own, so that a
// load that fails can be taken back.
double largestMagnitude(const Context &context, MatrixView<const float> matrix) {
  if (context.onCpu()) return largestOf(matrix.data, matrix.size());
  Buffer<float> ofRows(context, matrix.rows);
  rowAbsMax(context, matrix, ofRows.data());
  std::vector<float> each(static_cast<size_t>(matrix.rows));
  detail::copyToHost(context, each.data(), ofRows.data(), ofRows.bytes());
  return double(*std::max_element(each.begin(), each.end()));
}

// The largest magnitude of the cells once the one value of `from`, in host memory, has been written
// to all of them.
double largestWritten(const Context &context, const PulsedKernels &kernels, CellArray cells,
                      MatrixView<const float> from) {
  if (!context.onCpu()) {
    Buffer<float> value(context, 1);
    detail::copyFromHost(context, value.data(), from.data, sizeof(float));
    from.data = value.data();
    Buffer<float> weights(context, from.size());
    cells.weights = weights.data();
    overCells(context, from.size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
      kernels.write(cells, from, begin, end, stream);
    });
    return largestMagnitude(context, rowMajor<const float>(weights.data(), from.rows, from.cols));
  }
  double largest = 0.0;
  std::mutex joining;
  overCells(context, from.size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    constexpr int64_t kSome = 512;
    float weights[kSome];
    float *const start = weights;
    CellArray some = cells;
    double most = 0.0;
    for (int64_t first = begin; first < end; first += kSome) {
      const int64_t count = std::min(kSome, end - first);
      some.weights = start - first;  // the kernel adds the number of a cell, `first` at least
      kernels.write(some, from, first, first + count, stream);
      most = std::max(most, largestOf(weights, count));
    }
    const std::lock_guard<std::mutex> lock(joining);
    largest = std::max(largest, most);
  });
  return largest;
}

}  // namespace

Buffer<float> PulsedDevice::describeCells(const Context &context) const {
  Buffer<float> drifted;
  Buffer<float> planes = describeStored(context, storedNow(context, drifted));
  if (reference_.empty() && signs_.empty()) return planes;
  forEach(context, size(), DescribeSeen{frame(), size(), planes.data()});
  return planes;
}

Buffer<float> PulsedDevice::symmetricPoints(const Context &context, int64_t pairs,
                                            RandomKey key) const {
  Buffer<float> points(context, size());
  balance(context, pairs, key, points.data());
  forEach(context, size(), VisibleWeight{frame(), points.data(), 0.0f, key_, 0, points.data()});
  return points;
}

void PulsedDevice::balance(const Context &context, int64_t pairs, RandomKey key,
                           float *points) const {
  const CellLoan loan(context, cells_);
  SampledCells cells = sampledCells(loan);
  cells.key = key;
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps * (1 + pairs),
            [&](int64_t begin, int64_t end, void *stream) {
              kernels.balance(cells, pairs, points, begin, end, stream);
            });
}

int64_t PulsedDevice::cellsWithoutSymmetricPoint(const Context &context) const {
  Buffer<float> points(context, size());
  balance(context, 0, key_, points.data());
  const Buffer<float> planes = describeStored(context, points.data());
  std::vector<float> steps(static_cast<size_t>(4 * size()));
  detail::copyToHost(context, steps.data(), planes.data(), planes.bytes());
  const float *up = steps.data() + 2 * size();
  const float *down = up + size();
  int64_t count = 0;
  for (int64_t i = 0; i < size(); ++i) {
    const float larger = std::max(std::fabs(up[i]), std::fabs(down[i]));
    count += std::fabs(up[i] + down[i]) > 0.1f * larger ? 1 : 0;
  }
  return count;
}

// Bounds and steps of cells at these stored weights, without reference and sign.
Buffer<float> PulsedDevice::describeStored(const Context &context, const float *weights) const {
  Buffer<float> planes(context, 4 * size());
  const CellLoan loan(context, cells_);
  const SampledCells cells = sampledCells(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.describe(cells, weights, planes.data(), begin, end, stream);
  });
  return planes;
}

double PulsedDevice::weightBound(const Context &context) const {
  constexpr double kMostNormal = 7.0;  // normals are drawn below
  const CellLoan loan(context, cells_);
  CellArray cells{};
  static_cast<SampledCells &>(cells) = sampledCells(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  double largest = 0.0;
  for (const float beyond : {3e38f, -3e38f}) {  // every bound
    const MatrixView<const float> written{&beyond, rows_, cols_, 0, 0};
    largest = std::max(largest, largestWritten(context, kernels, cells, written));
  }
  if (!reference_.empty())
    largest += largestMagnitude(context, rowMajor<const float>(reference_.data(), rows_, cols_));
  return largest + kMostNormal * double(writeNoise());
}

int64_t PulsedDevice::saturatedCells(const Context &context) const {
  Buffer<float> drifted;
  const float *w = storedNow(context, drifted);
  const Buffer<float> planes = describeStored(context, w);
  const float *high = planes.data();
  const float *low = high + size();
  if (!context.onCpu()) return detail::cudaCountOutside(context, w, high, low, size());
  int64_t count = 0;
  for (int64_t i = 0; i < size(); ++i) count += w[i] >= high[i] || w[i] <= low[i];
  return count;
}

}  // namespace pulsora
