// A matrix is programmed into pairs of phase-change devices, and read up to a year later, with and
// without drift compensation.

#include <cmath>
#include <cstdio>
#include <pulsora/inference.h>
#include <pulsora/noise_models/pcm_like.h>
#include <pulsora/tile.h>
#include <pulsora/tile_programming.h>
#include <vector>

constexpr int kOut = 32, kIn = 64, kBatch = 100;
constexpr double kYear = 3.15e7;

struct Times {
  std::vector<float> first, again;  // outputs a year after programming, read twice
  double young = 0.0, old = 0.0;    // errors of the outputs after one second and after a year
};

double errorOf(const std::vector<float> &y, const std::vector<float> &exact) {
  double error = 0.0, size = 0.0;
  for (size_t k = 0; k < y.size(); ++k) {
    error += std::pow(static_cast<double>(y[k]) - exact[k], 2);
    size += std::pow(static_cast<double>(exact[k]), 2);
  }
  return std::sqrt(error / size);
}

// Reads a programmed matrix after one second, after a year, and after a year once more.
Times read(pulsora::Compensation compensation) {
  pulsora::PCMLike::Params memory;
  memory.g_max = 25.0f;  // uS
  pulsora::InferenceParams array;
  array.noise_model = memory;
  array.compensation = compensation;
  pulsora::TileConfig config;
  config.compound = array;
  pulsora::Tile tile(kOut, kIn, config, /*seed=*/1);

  std::vector<float> w(kOut * kIn), x(kBatch * kIn), y(kBatch * kOut), exact(kBatch * kOut);
  for (int k = 0; k < kOut * kIn; ++k) w[k] = 0.1f * std::sin(0.7f * static_cast<float>(k * k));
  for (int k = 0; k < kBatch * kIn; ++k) x[k] = std::sin(1.3f * static_cast<float>(k));
  for (int s = 0; s < kBatch; ++s)
    for (int i = 0; i < kOut; ++i)
      for (int j = 0; j < kIn; ++j) exact[s * kOut + i] += w[i * kIn + j] * x[s * kIn + j];

  tile.setWeights(pulsora::rowMajor<const float>(w.data(), kOut, kIn));
  tile.programming().program(/*number=*/0);
  const auto outputs = [&](double time) {
    tile.programming().drift(time);
    tile.forward(pulsora::rowMajor<const float>(x.data(), kBatch, kIn),
                 pulsora::rowMajor(y.data(), kBatch, kOut));
    return y;
  };
  Times found;
  found.first = outputs(kYear);
  found.young = errorOf(outputs(1.0), exact);
  found.again = outputs(kYear);
  found.old = errorOf(found.again, exact);
  return found;
}

int main() {
  const Times plain = read(pulsora::Compensation::None);
  const Times compensated = read(pulsora::Compensation::Global);
  std::printf("relative error of the outputs      after 1 s   after 1 year\n");
  std::printf("without compensation               %9.3f   %12.3f\n", plain.young, plain.old);
  std::printf("with one factor for all outputs    %9.3f   %12.3f\n", compensated.young,
              compensated.old);
  const bool same = plain.first == plain.again && compensated.first == compensated.again;
  std::printf("the year read before and after the second: %s\n", same ? "the same bits" : "others");
  return same && compensated.old < 0.5 * plain.old ? 0 : 1;
}
