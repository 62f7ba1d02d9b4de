// Makes the same updates of a tile on the CPU and on a GPU, with inputs in the library's memory;
// the states are equal to the bit. The program needs no CUDA compiler, but a Pulsora built with
// CUDA.

#include <cstdio>
#include <pulsora/buffer.h>
#include <pulsora/gpu.h>
#include <pulsora/linear_algebra.h>
#include <pulsora/state_file.h>
#include <pulsora/tile.h>

constexpr int64_t kOut = 300, kIn = 200, kBatch = 32;

// The state of a tile of constant-step cells after 20 mini-batches of random inputs.
auto trained(const pulsora::Context &context) {
  pulsora::Tile tile(kOut, kIn, pulsora::TileConfig{}, /*seed=*/1, /*tileId=*/0, context);
  pulsora::Buffer<float> x(context, kBatch * kIn), d(context, kBatch * kOut);
  const auto xs = pulsora::rowMajor(x.data(), kBatch, kIn);
  const auto ds = pulsora::rowMajor(d.data(), kBatch, kOut);
  const pulsora::RandomKey key = pulsora::makeKey(/*seed=*/2, /*tile=*/0, /*array=*/0);
  for (uint64_t step = 0; step < 20; ++step) {
    pulsora::kaimingRows(context, key, 2 * step, kBatch, /*gain=*/10.0f, xs);
    pulsora::kaimingRows(context, key, 2 * step + 1, kBatch, /*gain=*/1.0f, ds);
    tile.update(xs, ds, /*lr=*/0.05f);
  }
  return pulsora::writeState(tile.state());
}

int main() {
  if (pulsora::cudaDeviceCount() == 0) {
    std::puts("no GPU: none in this machine, or Pulsora was built without CUDA");
    return 0;
  }
  pulsora::Context gpu;
  gpu.backend = pulsora::Backend::Cuda;
  const bool equal = trained(gpu) == trained(pulsora::Context{});
  std::printf("CPU and GPU: %s\n", equal ? "the same bits" : "other bits");
  return equal ? 0 : 1;
}
