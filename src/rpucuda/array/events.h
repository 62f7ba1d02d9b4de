#pragma once

#include <cstdint>

#include "core/check.h"

// All ranges into which the `sample` coordinate of the draws of one array is divided
// (numerics/random.h: below 2^48).
//
// Samples number pulse trains; events number everything else that happens to an array: digital
// writes, resets, the ends of mini-batches. An event keys its own draws and the draws of the write
// noise that follows it; write noise after pulse trains is keyed by the sample behind them. These
// ranges must not overlap:
//
//   pulses       [0, 2^44)         samples of updates or transfers, as the caller numbers them
//                [2^44, 2^45)      pulses that write an array (PulseWriter)
//   write noise  [0, 2^46)         after pulse trains: the sample behind them
//                [2^46, 2 2^46)    after the end of mini-batch n:  kRelaxEvents + n
//                [2 2^46, 3 2^46)  after reset n:                  kResetEvents + n
//                [3 2^46, 4 2^46)  after digital write n:          kSetEvents + n
//
// Reads have streams of their own (array_keys.h), in which each direction numbers its samples:
//
//   reads        [0, 2^44)                 in training, as the tile counts them
//                [2^47, 2^47 + 5 2^44)     in evaluations: evaluationSample()
//
// The numbers n of digital writes are divided again. The tile numbers writes to an array that it
// alone writes from 0 up (Counters::events). A compound numbers its own writes from 2^45 up
// (ownWrite); to an array that both write, the tile numbers from 2^46 down (tileWrite).

namespace pulsora {

constexpr uint64_t kWritePulseSamples = uint64_t{1} << 44;

/// The most samples, mini-batches or writes that a tile may count: no range above is shorter.
constexpr uint64_t kMostCounted = uint64_t{1} << 44;

constexpr uint64_t kRelaxEvents = uint64_t{1} << 46;
constexpr uint64_t kResetEvents = uint64_t{2} << 46;
constexpr uint64_t kSetEvents = uint64_t{3} << 46;

constexpr uint64_t kOwnWrites = uint64_t{1} << 45;

/// Event of the i-th digital write that a compound makes by itself.
constexpr uint64_t ownWrite(uint64_t i) { return kOwnWrites + i; }
/// Event of the i-th digital write by a caller of the tile, to an array that its compound writes
/// too.
constexpr uint64_t tileWrite(uint64_t i) { return 2 * kOwnWrites - 1 - i; }

constexpr uint64_t kEvaluationSamples = uint64_t{1} << 47;

/// Number of the i-th sample that an evaluation reads at a training state, which the number
/// `trained` of samples identifies. Two states that are d samples apart have disjoint numbers if
/// fewer than 2^44 / d samples are read at each: multiples of the golden ratio, modulo 1, keep that
/// far apart. Numbers begin at a multiple of eight, because one block of random numbers serves
/// eight samples.
constexpr uint64_t evaluationSample(uint64_t trained, uint64_t i) {
  const uint64_t spread = trained * 0x9E3779B97F4A7C15U >> 18;  // below 2^46
  return kEvaluationSamples + (spread & ~uint64_t{7}) + i;
}
/// Whether a read from this sample on is part of an evaluation, which changes nothing.
constexpr bool isEvaluation(uint64_t sample) { return sample >= kEvaluationSamples; }

/// Throws InputError unless `more` can be added to a count of `what` that may reach `most`.
inline void requireRoom(uint64_t count, uint64_t more, uint64_t most, const char *what) {
  PULSORA_CHECK(
      InputError, more <= most && count <= most - more, "this tile has counted ", count, " ", what,
      ", and ", more, " more would exceed the ", most,
      " for which it has random numbers; make a new tile with another seed, and give it these "
      "weights");
}

}  // namespace pulsora
