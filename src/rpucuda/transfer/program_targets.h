#pragma once

#include "transfer/plan_formulas.h"

// Transfers by program and verify: targets of cells, and what is revised after them.

namespace pulsora {

/// The weights that a transfer leads to: targets = weights + T, cell by cell, with the components
/// added in order.
struct TransferTargets {
  MatrixView<const float> weights;
  TransferFactors factors;
  float lr;
  float *targets;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / weights.cols;
    const int64_t col = i - row * weights.cols;
    float target = weights(row, col);
    for (int64_t k = 0; k < factors.d.cols; ++k)
      target = pulsora::fma(lr * factors.d(row, k), factors.x(col, k), target);
    targets[i] = target;
  }
};

/// The missing part of targets: targets - weights, in the place of the targets.
struct MissingWeights {
  MatrixView<const float> weights;
  float *targets;

  PULSORA_HD void operator()(int64_t i) const {
    targets[i] -= weights(i / weights.cols, i % weights.cols);
  }
};

/// Weights that something else than the array stands for, lr d x^T on some of its lines, after a
/// transfer that left others missing.
struct HeldLines {
  TransferFactors factors;
  float lr;
  const uint8_t *lines;  ///< of each row, or column: whether it is one of them
  bool areColumns;
  const uint32_t *any;  ///< one: 0 if there is none
};

/// Targets of a revised transfer, in the place of the missing weights: weights + missing, less what
/// is held.
struct RevisedTargets {
  MatrixView<const float> weights;
  HeldLines held;
  float *targets;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / weights.cols;
    const int64_t col = i - row * weights.cols;
    // A GPU cannot leave a revision out, as a CPU does if nothing is held: it changes nothing then.
    float target = *held.any == 0 ? weights(row, col) : weights(row, col) + targets[i];
    if (held.lines[held.areColumns ? col : row]) {
      const auto &[d, x] = held.factors;
      for (int64_t k = 0; k < d.cols; ++k)
        target = pulsora::fma(-held.lr * d(row, k), x(col, k), target);
    }
    targets[i] = target;
  }
};

/// Adds a revision to the statistics of the latest transfer, if anything was held: its pulses and
/// reads beside those before, its errors in their place. One element of work.
struct RevisionTally {
  const ProgramCounts *program;
  float tolerance;
  bool readsFirst;  ///< whether the program's first read of each cell was the last one before
  const uint64_t *pulseCounter;
  const uint64_t *pulsesBefore;
  const uint32_t *anyHeld;
  TransferStats *latest;
  TransferStats *total;

  PULSORA_HD void operator()(int64_t) const {
    if (*anyHeld == 0) return;
    const TransferStats was = *latest;
    TransferStats stats = was;
    stats.take(*program, tolerance);
    stats.slots += was.slots;
    stats.reads += was.reads - (readsFirst ? stats.cells : 0);
    stats.mostPulses += was.mostPulses;
    stats.pulses = *pulseCounter - *pulsesBefore;
    *latest = stats;
    total->pulses += stats.pulses - was.pulses;
    total->slots += stats.slots - was.slots;
    total->reads += stats.reads - was.reads;
    total->outside += stats.outside - was.outside;
    if (stats.mostPulses > total->mostPulses) total->mostPulses = stats.mostPulses;
    total->errorSum += stats.errorSum - was.errorSum;
    total->errorSquare += stats.errorSquare - was.errorSquare;
  }
};

}  // namespace pulsora
