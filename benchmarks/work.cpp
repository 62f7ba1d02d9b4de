#include "work.h"

namespace RPU::bench {
namespace {

// Vector instructions per lane that each step needs as written here (AVX-512).
constexpr double kBlockOperations = 15.5 * 8;  // ten rounds of Philox: four words
// Share of these that the coincidences of a cell, or of eight samples, have in common.
constexpr double kSharedRounds = 0.3;
constexpr double kPairOperations = 25.0;  // Box and Muller: two normals from one word
constexpr double kNormalOperations = kBlockOperations / 8 + kPairOperations / 2;
// The closed form of one sample far from the bounds: step (slope, rate) of the direction, mean,
// deviation, weight.
double ruleOperations(const std::string &device) { return device == "SoftBounds" ? 20.0 : 6.0; }

double cells(int64_t n) { return static_cast<double>(n * n); }

}  // namespace

Work productWork(int64_t n, int64_t m) {
  return {4.0 * cells(n), cells(n) * static_cast<double>(m)};
}

Work updateWork(const std::string &device, int64_t n, int64_t m, bool dense) {
  const double samples = static_cast<double>(m);
  const double perSample = dense ? kNormalOperations + 6.0 + ruleOperations(device)
                                 : 0.025 * ((1.0 - kSharedRounds) * kBlockOperations +
                                            kPairOperations + ruleOperations(device) / 2);
  return {16.0 * cells(n), cells(n) * samples * perSample};
}

Work wordsWork(int64_t n, int64_t m, double slots) {
  return {4.0 * 2.0 * static_cast<double>(n * m),
          2.0 * static_cast<double>(n) * slots * (kBlockOperations / 4 + 3.0)};
}

double slotsOf(int64_t m, bool dense) { return (dense ? 9.0 : 1.0) * static_cast<double>(m); }

}  // namespace RPU::bench
