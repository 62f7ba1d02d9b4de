#pragma once

#include <cstdint>
#include <string>

namespace RPU::bench {

/// What a case needs at least, whatever the code: bytes to and from memory, and vector lane
/// operations (a fused multiply-add of one float, or an integer instruction on one 32-bit lane, is
/// one).
struct Work {
  double bytes = 0.0;
  double laneOperations = 0.0;

  Work operator+(const Work &other) const {
    return {bytes + other.bytes, laneOperations + other.laneOperations};
  }
  Work operator*(double factor) const { return {bytes * factor, laneOperations * factor}; }
};

/// A read of a square array of n lines for a batch of m.
Work productWork(int64_t n, int64_t m);

/// Pulses on such an array, without making their words: weight in and out, four half floats per
/// cell; per sample a count and one normal, or, sparsely, the later rounds of a block of random
/// words per coincidence.
Work updateWork(const std::string &device, int64_t n, int64_t m, bool dense);

/// Words of both lines. Four samples share a block of random words; `slots` is the sum of the
/// samples' train lengths.
Work wordsWork(int64_t n, int64_t m, double slots);

/// About that sum, for the batches of the benchmark.
double slotsOf(int64_t m, bool dense);

}  // namespace RPU::bench
