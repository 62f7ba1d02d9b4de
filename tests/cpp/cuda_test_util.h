#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/cuda_api.h"
#include "pulse_test_util.h"
#include "state.h"
#include "tile.h"

// What the tests of the CUDA backend share. They compare it with the CPU backend, bit by bit
// wherever that is promised.

/// At the start of each test that needs a GPU.
#define RPU_REQUIRE_GPU()                                   \
  if (::RPU::cudaDeviceCount() == 0)                        \
  GTEST_SKIP() << "this build or this machine has no CUDA " \
                  "device"

namespace RPU::testing {

inline Context cpuContext() {
  Context context;
  context.cpu.threads = 8;
  return context;
}
inline Context gpuContext() {
  Context context;
  context.backend = Backend::Cuda;
  return context;
}
/// With matrix products in the CPU's order of operations: everything is then equal to the bit.
inline Context reproducibleGpu() {
  Context context = gpuContext();
  context.cudaProducts = Products::Reproducible;
  return context;
}

/// A matrix in the context's memory with the values of one in host memory.
struct DeviceMatrix {
  Buffer<float> values;
  int64_t rows = 0;
  int64_t cols = 0;

  DeviceMatrix(const Context &context, int64_t rows_, int64_t cols_)
      : values(Buffer<float>::zeros(context, rows_ * cols_)), rows(rows_), cols(cols_) {}
  DeviceMatrix(const Context &context, MatrixView<const float> host)
      : DeviceMatrix(context, host.rows, host.cols) {
    detail::copyFromHost(context, values.data(), host.data, values.bytes());
  }
  MatrixView<float> view() { return rowMajor(values.data(), rows, cols); }
  MatrixView<const float> view() const { return rowMajor<const float>(values.data(), rows, cols); }
  std::vector<float> host(const Context &context) const {
    std::vector<float> out(static_cast<size_t>(rows * cols));
    detail::copyToHost(context, out.data(), values.data(), values.bytes());
    return out;
  }
};

/// The same x and d on a backend.
struct DeviceBatch {
  DeviceMatrix x;
  DeviceMatrix d;
  DeviceBatch(const Context &context, const Batch &batch)
      : x(context, batch.xView()), d(context, batch.dView()) {}
};

/// Whether two states hold the same bits; otherwise which tensor or value differs.
inline ::testing::AssertionResult sameState(const State &a, const State &b) {
  if (a.tensors.size() != b.tensors.size()) return ::testing::AssertionFailure() << "other tensors";
  for (const auto &[name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) return ::testing::AssertionFailure() << "no tensor " << name;
    if (tensor.bytes == other->second.bytes) continue;
    size_t at = 0;
    while (tensor.bytes[at] == other->second.bytes[at]) ++at;
    size_t count = 0;
    for (size_t i = 0; i < tensor.bytes.size(); ++i)
      count += tensor.bytes[i] != other->second.bytes[i];
    return ::testing::AssertionFailure() << name << " differs from byte " << at << " on, in "
                                         << count << " of " << tensor.bytes.size();
  }
  for (const auto &[name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end() || !(other->second == value)) {
      return ::testing::AssertionFailure() << "value " << name << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

/// A batch of gradients that are either large or so small that most trains have one slot.
inline Batch trainingBatch(int64_t samples, int64_t xSize, int64_t dSize, bool sparse,
                           uint64_t seed) {
  Batch batch = randomBatch(samples, xSize, dSize, seed);
  if (sparse) {
    for (float &d : batch.d) d *= 0.01f;
  }
  return batch;
}

}  // namespace RPU::testing
