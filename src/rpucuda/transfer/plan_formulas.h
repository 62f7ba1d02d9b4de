#pragma once

#include "array/program_cells.h"
#include "core/group.h"
#include "core/view.h"
#include "numerics/math.h"
#include "pulses/pulse_trains.h"
#include "transfer/transfer_stats.h"

// Planning, sending and accounting of transfers: one formula each, for every backend. Nothing here
// needs the host, so that a transfer on a GPU waits for nothing.

namespace pulsora {

/// The factors of a transfer T = lr d x^T, in the orientation of the array that is written.
struct TransferFactors {
  MatrixView<const float> d;  // [dSize, K]
  MatrixView<const float> x;  // [xSize, K]
};

/// The part of T that the next attempt sends, as a factor on T, and the gain of earlier attempts.
struct MissingPart {
  double next;
  double gain;
  bool full;  ///< the cells take no more
};

/// The plan of one component of a transfer: `trains` pulse trains, in each of which x line j is
/// driven by xScale * x(j, k) and d line i by dScale * d(i, k), at the plan's learning rate.
struct ComponentPlan {
  int32_t trains;
  uint32_t clipped;  ///< 1 if the pulse trains cannot carry all
  float xScale;
  float dScale;
  float strength;   ///< pulses that the component's largest element needs
  double driven;    ///< expected sum over cells of |change|
  double wanted;    ///< sum over cells of |T_k|
  double dSquares;  ///< sum of squares of d(., k)
  double xSquares;
};

/// Settings that plans depend on besides the factors.
struct PlanRule {
  UpdateParameters update;
  bool sends;  // whether pulse trains carry the transfer
  bool lossless;
  int maxTrains;  // per component
  float granularity;
  double magnitude;            // |lr| of the transfer
  const MissingPart *missing;  // part of T to be sent; null: all of it

  /// Learning rate of the pulse trains, a magnitude. With granularity * desired_bl, trainScale()
  /// takes drives for probabilities.
  PULSORA_HD float lr() const {
    return lossless ? granularity * static_cast<float>(update.desired_bl)
                    : static_cast<float>(magnitude);
  }
};

/// The pulse trains of a transfer are numbered 0, 1, ..., component by component; passes cut the
/// possible numbers [0, most) into pieces that are sent one by one.
struct TransferPasses {
  int64_t most;
  int64_t first;  // numbers of the first pass
  int64_t each;   // of each further pass

  PULSORA_HD int64_t count() const { return 1 + (most - first + each - 1) / each; }
  PULSORA_HD int64_t start(int64_t pass) const { return pass == 0 ? 0 : first + (pass - 1) * each; }
  PULSORA_HD int64_t end(int64_t pass) const { return pulsora::min(start(pass + 1), most); }
};

/// Sizes of a component that a plan needs.
struct ComponentSizes {
  float dLargest, xLargest;
  double dSum, xSum;  // of magnitudes
  double dSquares, xSquares;

  PULSORA_HD void join(const ComponentSizes &o) {
    dLargest = pulsora::max(dLargest, o.dLargest);
    xLargest = pulsora::max(xLargest, o.xLargest);
    dSum += o.dSum;
    xSum += o.xSum;
    dSquares += o.dSquares;
    xSquares += o.xSquares;
  }
};

/// Sums of |d| and |x|, each magnitude limited to what its line can carry.
struct LimitedSums {
  double d, x;

  PULSORA_HD void join(const LimitedSums &o) {
    d += o.d;
    x += o.x;
  }
};

/// Chooses the pulse trains and drives of a transfer.
struct TransferPlanner {
  PlanRule rule;
  TransferFactors sent;   // factors as read for this transfer
  TransferFactors exact;  // factors without the errors of the read
  TransferPasses passes;
  ComponentPlan *components;     // [K]
  int64_t *starts;               // [K + 1], number of each component's first pulse train
  int64_t *present;              // number of pulse trains of each pass
  const uint64_t *pulseCounter;  // of the array that is written; null if not needed
  uint64_t *pulsesBefore;        // gets the value of pulseCounter; null with it

  PULSORA_CALLS_GROUP
  template <class Group>
  PULSORA_HD void planComponent(const Group &group, int64_t k) const {
    const int64_t lines = pulsora::max(sent.d.rows, sent.x.rows);
    const ComponentSizes sizes = group.template reduce<ComponentSizes>(
        lines, [&](int64_t i, ComponentSizes &part) { look(k, i, part); });
    ComponentPlan plan{};
    plan.dSquares = sizes.dSquares;
    plan.xSquares = sizes.xSquares;
    if (rule.sends) {
      plan.wanted = rule.magnitude * sizes.dSum * sizes.xSum;
      const PulseTrainScale t = chooseTrains(sizes.dLargest, sizes.xLargest, plan);
      if (plan.trains > 0 && plan.clipped == 0) {
        plan.driven = plan.wanted;
      } else if (plan.trains > 0) {
        plan.driven = clippedDrive(group, k, t, plan);
      }
    }
    if (group.leads()) components[k] = plan;
  }

  /// Numbers the pulse trains and counts them per pass; after all components are planned.
  PULSORA_HD void placeTrains() const {
    int64_t number = 0;
    for (int64_t k = 0; k < exact.d.cols; ++k) {
      starts[k] = number;
      number += components[k].trains;
    }
    starts[exact.d.cols] = number;
    if (pulsesBefore) *pulsesBefore = *pulseCounter;
    for (int64_t p = 0; p < passes.count(); ++p) {
      present[p] = pulsora::max(pulsora::min(number, passes.end(p)) - passes.start(p), int64_t{0});
    }
  }

 private:
  PULSORA_HD void look(int64_t k, int64_t i, ComponentSizes &part) const {
    if (i < sent.d.rows) {
      const float magnitude = pulsora::abs(sent.d(i, k));
      part.dLargest = pulsora::max(part.dLargest, magnitude);
      part.dSum += static_cast<double>(magnitude);
      part.dSquares += static_cast<double>(exact.d(i, k)) * static_cast<double>(exact.d(i, k));
    }
    if (i < sent.x.rows) {
      const float magnitude = pulsora::abs(sent.x(i, k));
      part.xLargest = pulsora::max(part.xLargest, magnitude);
      part.xSum += static_cast<double>(magnitude);
      part.xSquares += static_cast<double>(exact.x(i, k)) * static_cast<double>(exact.x(i, k));
    }
  }

  PULSORA_HD PulseTrainScale chooseTrains(float dLargest, float xLargest,
                                          ComponentPlan &plan) const {
    const double missing = rule.missing ? rule.missing->next : 1.0;
    const double part = missing < 0.0 ? -missing : missing;
    plan.strength =
        static_cast<float>(rule.magnitude * part * static_cast<double>(dLargest) *
                           static_cast<double>(xLargest) / static_cast<double>(rule.granularity));
    if (!(plan.strength > 0.0f)) return {};
    plan.trains = 1;
    plan.xScale = plan.dScale = 1.0f;
    if (rule.lossless) balance(dLargest, xLargest, plan);
    if (missing < 0.0) plan.dScale = -plan.dScale;  // too much arrived
    const float dDrive = pulsora::abs(plan.dScale) * dLargest;
    const float xDrive = plan.xScale * xLargest;
    const PulseTrainScale t = trainScale(rule.update, rule.lr(), rule.granularity, xDrive, dDrive);
    if (t.length == 0) plan.trains = 0;
    plan.clipped = plan.trains > 0 && trainsClip(t, xDrive, dDrive) ? 1 : 0;
    return t;
  }

  /// Lossless: the drives are the probabilities themselves. Both sides peak at p with p^2 *
  /// desired_bl * trains pulses for the largest element, so that neither clips and every element
  /// has the mean lr d_i x_j, whatever the scales of d and x.
  PULSORA_HD void balance(float dLargest, float xLargest, ComponentPlan &plan) const {
    const double needed = static_cast<double>(plan.strength);
    const double length = static_cast<double>(rule.update.desired_bl);
    const double exactly = needed / length;
    const bool fits = exactly < static_cast<double>(rule.maxTrains);
    const int whole = fits ? static_cast<int>(exactly) : rule.maxTrains;
    plan.trains = fits && static_cast<double>(whole) < exactly ? whole + 1 : whole;
    const double p = pulsora::sqrt(needed / (length * static_cast<double>(plan.trains)));
    plan.xScale = static_cast<float>(p / static_cast<double>(xLargest));
    plan.dScale = static_cast<float>(p / static_cast<double>(dLargest));
  }

  /// Expected sum over cells of |change| when probabilities above 1 are clipped to 1.
  PULSORA_CALLS_GROUP
  template <class Group>
  PULSORA_HD double clippedDrive(const Group &group, int64_t k, const PulseTrainScale &t,
                                 const ComponentPlan &plan) const {
    const float dLimit = 1.0f / (t.dScale * pulsora::abs(plan.dScale));
    const float xLimit = 1.0f / (t.xScale * plan.xScale);
    const int64_t lines = pulsora::max(sent.d.rows, sent.x.rows);
    const LimitedSums sums =
        group.template reduce<LimitedSums>(lines, [&](int64_t i, LimitedSums &part) {
          if (i < sent.d.rows)
            part.d += static_cast<double>(pulsora::min(pulsora::abs(sent.d(i, k)), dLimit));
          if (i < sent.x.rows)
            part.x += static_cast<double>(pulsora::min(pulsora::abs(sent.x(i, k)), xLimit));
        });
    const double perElement =
        static_cast<double>(plan.trains) * static_cast<double>(t.length) *
        static_cast<double>(rule.granularity) *
        (static_cast<double>(t.dScale) * static_cast<double>(pulsora::abs(plan.dScale))) *
        (static_cast<double>(t.xScale) * static_cast<double>(plan.xScale));
    return perElement * sums.d * sums.x;
  }
};

/// The drives of one pass, [pulse train][line], x and d: columns of the factors, scaled.
struct PulseTrainDrives {
  TransferFactors factors;
  const ComponentPlan *components;
  const int64_t *starts;
  int64_t first;  // number of the pass's first pulse train
  float *x;
  float *d;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t lines = factors.x.rows + factors.d.rows;
    if (i >= (starts[factors.x.cols] - first) * lines) return;  // usual, so before divisions
    const int64_t train = i / lines;
    const int64_t line = i % lines;
    const int64_t k = componentOf(first + train);
    const int64_t dLine = line - factors.x.rows;
    if (dLine < 0) {
      x[train * factors.x.rows + line] = components[k].xScale * factors.x(line, k);
    } else {
      d[train * factors.d.rows + dLine] = components[k].dScale * factors.d(dLine, k);
    }
  }

 private:
  PULSORA_HD int64_t componentOf(int64_t number) const {
    int64_t low = 0;
    int64_t high = factors.x.cols;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (starts[middle] <= number ? low : high) = middle;
    }
    return low;
  }
};

/// The part of T that may stay missing without another attempt.
constexpr double kDelivered = 0.01;
/// The part that an attempt is taken to deliver at least, where cells at their bounds take nothing.
constexpr double kLeastPart = 0.25;
/// Pulses of an attempt that are enough to tell chance from cells at their bounds: if less than
/// kDelivered of them changed anything, another attempt would cost as much and bring as little.
constexpr uint64_t kTellingPulses = 1000000;

/// Gathers the statistics of a transfer after each of its attempts.
struct TransferTally {
  const ComponentPlan *components;
  int64_t rank;
  float granularity;     // of the array that is written
  bool xIsFirst;         // see TransferRule
  const double *before;  // per row of W: <W, T>, before and after, and <T, T>
  const double *after;
  const double *intended;
  int64_t rows;
  const uint64_t *pulseCounter;  // of the array that was written
  const uint64_t *pulsesBefore;  // its value before the transfer
  const ProgramCounts *program;  // of TransferMode::WriteVerify, else null
  float tolerance;               // of it
  bool first;                    // of the transfer's attempts
  bool last;
  MissingPart *missing;
  TransferStats *latest;
  TransferStats *total;

  struct Sums {
    double delivered, intended;

    PULSORA_HD void join(const Sums &o) {
      delivered += o.delivered;
      intended += o.intended;
    }
  };

  PULSORA_CALLS_GROUP
  template <class Group>
  PULSORA_HD void count(const Group &group) const {
    const Sums sums = group.template reduce<Sums>(rows, [&](int64_t i, Sums &part) {
      part.delivered += after[i] - before[i];
      part.intended += intended[i];
    });
    if (!group.leads()) return;
    const TransferStats previous = first ? TransferStats{} : *latest;
    TransferStats stats;
    double dSquares = 0.0;
    double xSquares = 0.0;
    for (int64_t k = 0; k < rank; ++k) {
      const ComponentPlan &c = components[k];
      stats.trains += static_cast<uint64_t>(c.trains);
      stats.clippedComponents += c.clipped;
      stats.driven += c.driven;
      stats.wanted += c.wanted;
      dSquares += c.dSquares;
      xSquares += c.xSquares;
    }
    stats.normA = pulsora::sqrt(xIsFirst ? xSquares : dSquares);
    stats.normB = pulsora::sqrt(xIsFirst ? dSquares : xSquares);
    if (!first) {  // the clipped and the carried share refer to the first attempt
      stats.driven = previous.driven;
      stats.wanted = previous.wanted;
      stats.clippedComponents = previous.clippedComponents;
      stats.trains += previous.trains;
    }
    stats.transfers = 1;
    stats.sendings = previous.sendings + (first || stats.trains > previous.trains);
    stats.delivered = sums.delivered;
    stats.intended = sums.intended;
    stats.pulses = *pulseCounter - *pulsesBefore;
    if (program) stats.take(*program, tolerance);
    *latest = stats;
    if (last) {
      total->add(stats);
    } else {
      planNext(stats, stats.pulses - previous.pulses);
    }
  }

 private:
  // Sets `missing` after an attempt of so many pulses.
  PULSORA_HD void planNext(const TransferStats &stats, uint64_t pulses) const {
    const double rest = stats.intended > 0.0 ? 1.0 - stats.gain() : 0.0;
    const bool done = rest <= kDelivered && rest >= -kDelivered;
    const double sent = first ? 1.0 : missing->next;
    const double arrived = stats.gain() - (first ? 0.0 : missing->gain);
    // The part of the last attempt that arrived; of the next attempt, about as much will.
    const double part = arrived / sent;
    // The change if all pulses were taken; the pulse trains may be too few for all that was sent.
    const double carried = static_cast<double>(pulses) * static_cast<double>(granularity);
    const bool refused = pulses >= kTellingPulses &&
                         (sent < 0.0 ? -arrived : arrived) * stats.wanted < kDelivered * carried;
    missing->full = refused || (!first && missing->full);
    missing->next = done || missing->full ? 0.0 : rest / (part > kLeastPart ? part : kLeastPart);
    missing->gain = stats.gain();
  }
};

}  // namespace pulsora
