#include <cmath>
#include <gtest/gtest.h>

#include "cuda/cuda_test_util.h"

// The products of large arrays, which the GPU's tensor cores make.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

struct Shape {
  int64_t rows, cols, samples;
};

/// |read - exact| / |exact| over a whole result, where exact = in * weights^T in double precision.
double relativeError(MatrixView<const float> in, MatrixView<const float> weights,
                     const std::vector<float> &read) {
  double difference = 0.0;
  double size = 0.0;
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t l = 0; l < weights.rows; ++l) {
      double sum = 0.0;
      for (int64_t k = 0; k < weights.cols; ++k) {
        sum += static_cast<double>(in(i, k)) * static_cast<double>(weights(l, k));
      }
      const double off = static_cast<double>(read[static_cast<size_t>(i * weights.rows + l)]) - sum;
      difference += off * off;
      size += sum * sum;
    }
  }
  return std::sqrt(difference / size);
}

/// Without anything that is not the product.
TileConfig bareConfig() {
  TileConfig config = singleConfig();
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->inp_res = io->out_res = io->out_noise = 0.0f;
    io->noise_management = NoiseManagement::None;
    io->bound_management = BoundManagement::None;
    io->out_bound = 1e6f;
  }
  return config;
}

// More products than are read in one launch. The second shape ends within blocks of lines, of rows
// and of inputs; the third cannot be taken in quads and goes to cuBLAS.
TEST(CudaProduct, LargeReadsAreAsAccurateAsSinglePrecision) {
  PULSORA_REQUIRE_GPU();
  for (const Shape &shape : {Shape{2048, 2048, 17}, Shape{1000, 1036, 70}, Shape{1001, 1037, 70}}) {
    const Batch batch = randomBatch(shape.samples, shape.cols, shape.rows, 4);
    const Batch values = randomBatch(shape.rows, shape.cols, 1, 5);
    const bool inQuads = shape.rows % 4 == 0;
    for (const GpuProducts products :
         {GpuProducts::Single, GpuProducts::Tf32Forward, GpuProducts::Tf32}) {
      SCOPED_TRACE(message(shape.rows, " x ", shape.cols, ", ", static_cast<int>(products)));
      Context context = gpuContext();
      context.gpuProducts = products;
      Tile tile(shape.rows, shape.cols, bareConfig(), 5, 2, context);
      tile.setWeights(DeviceMatrix(context, values.xView()).view());
      DeviceMatrix kept(context, shape.rows, shape.cols);
      tile.getWeights(kept.view());
      const std::vector<float> host = kept.host(context);
      const auto weights = rowMajor<const float>(host.data(), shape.rows, shape.cols);
      const DeviceBatch on(context, batch);
      DeviceMatrix y(context, shape.samples, shape.rows);
      DeviceMatrix dx(context, shape.samples, shape.cols);
      tile.forward(on.x.view(), y.view());
      tile.backward(on.d.view(), dx.view());
      const double forward = relativeError(batch.xView(), weights, y.host(context));
      const double backward = relativeError(batch.dView(), weights.transposed(), dx.host(context));
      // Single precision has 4e-7 here; factors of 11 bits have 2.6e-4.
      const bool roundsForward = inQuads && products != GpuProducts::Single;
      const bool roundsBackward = inQuads && products == GpuProducts::Tf32;
      EXPECT_LT(forward, roundsForward ? 4e-4 : 6e-7);
      EXPECT_LT(backward, roundsBackward ? 4e-4 : 6e-7);
      EXPECT_EQ(forward > 1e-4, roundsForward);
      EXPECT_EQ(backward > 1e-4, roundsBackward);
    }
  }
}

}  // namespace
}  // namespace pulsora
