#pragma once

#include <string>
#include <vector>

#include "array/line_visits.h"
#include "array/pulsed_device.h"
#include "core/buffer.h"
#include "core/scratch.h"
#include "periphery/analog_read.h"
#include "storage/state.h"
#include "transfer/line_buffer.h"
#include "transfer/line_trains.h"
#include "transfer/transfer_schedule.h"

namespace pulsora {

/// Visits that are due within some samples: visit v after sample firstTap + v / together * every.
struct DueVisits {
  LineVisits visits;
  int64_t firstTap = 0;
  int64_t every = 1;

  /// The visits of events before sample `end`.
  int64_t before(int64_t end) const {
    const int64_t events = end <= firstTap ? 0 : (end - firstTap - 1) / every + 1;
    return std::min(visits.count, events * visits.together);
  }
};

/// The settings of a transfer that are no numbers of a LineRule.
struct LineSettings {
  IOParameters read;       // periphery of the reads
  UpdateParameters write;  // pulse trains, where no buffer counts pulses
  TransferSchedule schedule;
  int64_t together = 1;  // lines of one event
  bool random = false;   // lines are drawn
  float resetProbability = 0.0f;
};

/// The transfers between two arrays of a chain: lines of the first are read one after another,
/// collected by a buffer, and written onto the same lines of the second. Holds schedule, choppers,
/// and state; the two arrays belong to the caller.
class LineTransfer {
 public:
  /// The arrays lie in slots `from` and `to` of the tile. ConfigError if `settings.read` has an
  /// effect that needs more than the driven line.
  LineTransfer(const Context &context, const LineRule &rule, const LineSettings &settings,
               const TileKeys &keys, uint32_t from, uint32_t to, const std::string &path);

  const LineRule &rule() const { return rule_; }
  const LineSettings &settings() const { return settings_; }
  const AnalogRead &reader() const { return reader_; }
  /// Reads of lines so far.
  uint64_t reads() const { return reads_; }

  /// The visits that are due within the next `samples` samples; none if the schedule counts
  /// mini-batches.
  DueVisits dueWithin(int64_t samples) const;
  /// The visits of one event.
  DueVisits oneEvent() const;
  /// Whether the end of the mini-batch is an event.
  bool dueAtEnd() const { return settings_.schedule.due(TransferSchedule::Unit::MiniBatches, 1); }
  /// Counts samples, or the end of a mini-batch.
  void passed(TransferSchedule::Unit unit, int64_t count) { settings_.schedule.take(unit, count); }

  /// Makes the inputs of one side of the first array's update, with choppers and rates of samples.
  void chop(const Context &context, MatrixView<const float> in, const DueVisits &due, bool isX,
            const float *rates, float *out) const;
  /// Taps of the first array for these visits.
  LineTaps taps(const DueVisits &due) const;

  /// Reserves storage for run() with up to `visits` visits onto an array of that granularity.
  void reserve(const Context &context, int64_t visits, float granularity);
  /// Memory for the weights of the visited lines, [visits, others], for run().
  float *seen() { return seen_.data(); }
  /// Takes the weights of visited lines, as seen(), through the periphery and the buffer. Returns
  /// the pulses for the second array, `to`; `lr` is the learning rate of the transfer, a magnitude,
  /// and `rates` are the learning rates of the first array's samples if the gain follows them.
  LinePulses run(const Context &context, const DueVisits &due, float lr, PulsedDevice &to,
                 const float *rates);

  /// Buffers, choppers and lines begin anew; random numbers go on.
  void restart(const Context &context);
  /// Signs of the choppers, for reads of the first array: of x lines [cols] and d lines [rows];
  /// null without choppers.
  const float *signs(bool ofX) const;

  /// Steps that writes were to make and could not: beyond desired_bl of a write.
  uint64_t clipped(const Context &context) const;
  /// The largest magnitude in the buffer; 0 without one.
  float largestBuffered(const Context &context) const;
  size_t memoryBytes() const;
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  ChopperFlips flips(const LineVisits &visits) const { return {rule_, visits, chopperKey_}; }
  void read(const Context &context, const LineVisits &visits);
  LinePulses writeTrains(const Context &context, const LineVisits &visits, float lr,
                         PulsedDevice &to);

  LineRule rule_;
  LineSettings settings_;
  RandomKey selectionKey_, chopperKey_, writeKey_;
  AnalogRead reader_;
  LineTrains trains_;
  uint64_t reads_ = 0;   // number of the next visit
  uint64_t origin_ = 0;  // see LineVisits
  // Matrices [lines, others], and signs: Sum has sums_, choppers the signs, Dynamic all of them.
  Buffer<float> sums_, means_, references_, lineSigns_, otherSigns_;
  std::vector<float> ones_;   // what signs are at the beginning
  Buffer<uint64_t> clipped_;  // one number
  ScratchBuffer<float> seen_, driven_, sensed_, pulses_;
};

}  // namespace pulsora
