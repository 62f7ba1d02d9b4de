// A tile of soft-bounds cells learns a matrix by pulses, is saved, and continues from the file with
// equal bits.

#include <cstdio>
#include <pulsora/devices/soft_bounds.h>
#include <pulsora/single.h>
#include <pulsora/state_file.h>
#include <pulsora/tile.h>
#include <random>
#include <vector>

constexpr int kOut = 4, kIn = 8, kBatch = 16;

// One step of gradient descent on |W x - target x|^2 / 2; returns the mean squared error before it.
float trainStep(pulsora::Tile &tile, const std::vector<float> &target, std::mt19937 &random) {
  std::vector<float> x(kBatch * kIn), y(kBatch * kOut), d(kBatch * kOut);
  for (float &value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  tile.forward(pulsora::rowMajor(x.data(), kBatch, kIn), pulsora::rowMajor(y.data(), kBatch, kOut));
  float error = 0.0f;
  for (int s = 0; s < kBatch; ++s) {
    for (int i = 0; i < kOut; ++i) {
      float wanted = 0.0f;
      for (int j = 0; j < kIn; ++j) wanted += target[i * kIn + j] * x[s * kIn + j];
      d[s * kOut + i] = y[s * kOut + i] - wanted;
      error += d[s * kOut + i] * d[s * kOut + i] / (kBatch * kOut);
    }
  }
  tile.update(pulsora::rowMajor(x.data(), kBatch, kIn), pulsora::rowMajor(d.data(), kBatch, kOut),
              0.02f);
  return error;
}

int main() {
  pulsora::SoftBounds::Params device;
  device.dw_min = 0.002f;  // mean weight change of one pulse
  pulsora::SingleParams array;
  array.device = device;
  pulsora::TileConfig config;
  config.compound = array;

  pulsora::Tile tile(kOut, kIn, config, /*seed=*/1);
  std::vector<float> target(kOut * kIn);
  for (int k = 0; k < kOut * kIn; ++k) target[k] = 0.3f * static_cast<float>(k % 3 - 1);
  std::mt19937 random(1);
  const float before = trainStep(tile, target, random);
  float after = before;
  for (int step = 0; step < 200; ++step) after = trainStep(tile, target, random);
  std::printf("squared error %.4f before training, %.4f after\n", before, after);

  pulsora::saveState("tile.safetensors",
                     tile.state());  // Python: pulsora.Tile.load("tile.safetensors")
  pulsora::Tile resumed(kOut, kIn, config, /*seed=*/1);
  resumed.loadState(pulsora::loadState("tile.safetensors"));
  std::mt19937 same = random;
  const bool equal = trainStep(tile, target, random) == trainStep(resumed, target, same) &&
                     pulsora::writeState(tile.state()) == pulsora::writeState(resumed.state());
  std::printf("resumed from tile.safetensors: %s\n", equal ? "the same bits" : "other bits");
  return equal && after < 0.1f * before ? 0 : 1;
}
