#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "compounds/ideal.h"
#include "compounds/single.h"
#include "core/cuda_api.h"
#include "lrtt/parameters.h"
#include "storage/state.h"
#include "tile/tile.h"
#include "util/plain_lrtt.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

// Shared code of the tests of the CUDA backend, which compare it with the CPU backend, bit by bit
// wherever equal bits are promised.

/// Skips a test that needs a GPU where there is none; first line of such a test.
#define PULSORA_REQUIRE_GPU()                               \
  if (::pulsora::cudaDeviceCount() == 0)                    \
  GTEST_SKIP() << "this build or this machine has no CUDA " \
                  "device"

namespace pulsora::testing {

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
/// A GPU with matrix products in the CPU's order of operations: all results equal the CPU's to the
/// bit.
inline Context reproducibleGpu() {
  Context context = gpuContext();
  context.gpuProducts = GpuProducts::Reproducible;
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

/// x and d of a Batch in a backend's memory.
struct DeviceBatch {
  DeviceMatrix x;
  DeviceMatrix d;
  DeviceBatch(const Context &context, const Batch &batch)
      : x(context, batch.xView()), d(context, batch.dView()) {}
};

/// A batch of gradients that are either large or so small that most pulse trains have one slot.
inline Batch trainingBatch(int64_t samples, int64_t xSize, int64_t dSize, bool sparse,
                           uint64_t seed) {
  Batch batch = randomBatch(samples, xSize, dSize, seed);
  if (sparse) {
    for (float &d : batch.d) d *= 0.01f;
  }
  return batch;
}

/// The parts from which with() makes a configuration.
struct Parts : TilePeriphery {
  DeviceParams device = makeParams("SoftBounds");  // of a single array
  LRTTParams lrtt = plainLrtt();                   // of an adapter

  TileConfig with(const CompoundParams &compound) const {
    TileConfig config;
    static_cast<TilePeriphery &>(config) = static_cast<const TilePeriphery &>(*this);
    config.compound = compound;
    return config;
  }
};
using Change = std::function<void(Parts &)>;

/// A tile of one array, by default of SoftBounds; `change` may change anything.
inline TileConfig singleConfig(const Change &change = {}) {
  Parts parts;
  if (change) change(parts);
  SingleParams single;
  single.device = parts.device;
  return parts.with(single);
}

/// Floating-point weights behind the default periphery.
inline TileConfig idealConfig() { return Parts{}.with(IdealParams{}); }

/// A tile with an adapter of rank 4.
inline TileConfig lrttConfig(const Change &change = {}) {
  Parts parts;
  parts.lrtt.rank = 4;
  parts.lrtt.transfer_every = 20;
  parts.lrtt.fast = makeParams("SoftBounds", {{"dw_min", Value(0.002)}});
  parts.lrtt.visible = makeParams("ConstantStep");
  if (change) change(parts);
  return parts.with(parts.lrtt);
}

/// Results of a few training steps, and where they lead.
struct Course {
  std::vector<std::vector<float>> results;
  State state;
};

// The size of the tiles that train() makes.
constexpr int64_t kCourseRows = 45;
constexpr int64_t kCourseCols = 70;

/// Trains a tile for some steps, from a state if one is given.
inline Course train(const Context &context, const TileConfig &config, int steps,
                    const State *from = nullptr) {
  Tile tile(kCourseRows, kCourseCols, config, 5, 2, context);
  if (from) tile.loadState(*from);
  Course run;
  for (int n = 0; n < steps; ++n) {
    const Batch batch = trainingBatch(n % 2 ? 9 : 16, kCourseCols, kCourseRows, n % 3 == 0,
                                      static_cast<uint64_t>(n));
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, batch.samples, kCourseRows);
    DeviceMatrix dx(context, batch.samples, kCourseCols);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.update(on.x.view(), on.d.view(), 0.05f);
    run.results.push_back(y.host(context));
    run.results.push_back(dx.host(context));
  }
  DeviceMatrix w(context, kCourseRows, kCourseCols);
  tile.getWeights(w.view());
  run.results.push_back(w.host(context));
  run.state = tile.state();
  return run;
}

}  // namespace pulsora::testing
