#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compounds/mixed_precision_parameters.h"
#include "core/scratch.h"
#include "transfer/line_trains.h"
#include "transfer/transfer_schedule.h"

namespace pulsora {

/// Inputs of an outer product, rounded to levels: out = factor * q(v), where q has the 2 half + 1
/// levels k width of a row whose largest magnitude is half * width; half = 0: exact.
struct BinnedInput {
  MatrixView<const float> in;
  const float *largest;  // of each row
  float half;
  bool stochastic;
  RandomKey key;
  Purpose purpose;
  uint64_t firstSample;
  float factor;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / in.cols;
    const int64_t col = i - row * in.cols;
    out[i] = factor * rounded(in(row, col), row, col);
  }

 private:
  PULSORA_HD float rounded(float v, int64_t row, int64_t col) const {
    if (half == 0.0f || largest[row] == 0.0f) return v;
    const float width = largest[row] / half;
    float level = v / width;
    if (stochastic) {
      const Philox4 drawn =
          draw(key, purpose, static_cast<uint64_t>(col), firstSample + static_cast<uint64_t>(row));
      level = pulsora::floor(level + uniform(drawn.v[0]));
    } else {
      level = pulsora::rint(level);
    }
    return pulsora::max(pulsora::min(level, half), -half) * width;
  }
};

/// Takes the whole units that cells of visited rows lag behind off the digital numbers, and writes
/// what is to be sent: units, or pulses, of which a fraction is drawn.
///
/// The lag of a cell is master - digital, where `digital` is what was sent so far; without a
/// master, it is `digital` itself.
struct LagTaker {
  LineVisits rows;
  MatrixView<const float> master;  // null: none
  MatrixView<float> digital;
  float unit;
  float most;     // units of a cell
  float perUnit;  // pulses of a unit; 0: units are wanted
  RandomKey key;
  uint64_t firstSample;
  const uint32_t *fault;  // see Context::nonfiniteFlag; may be null
  float *out;             // [visits, cols]

  PULSORA_HD void operator()(int64_t i) const {
    // A piece has fewer elements than 2^32, whose divisions take a quarter of those of 64 bits.
    const int64_t v = static_cast<uint32_t>(i) / static_cast<uint32_t>(digital.cols);
    const int64_t col = i - v * digital.cols;
    const int64_t row = rows.line(v);
    float &number = digital(row, col);
    const float lag = master.data ? master(row, col) - number : number;
    const float size = pulsora::abs(lag);
    if (size < unit || (fault && *fault)) {  // a quotient that is rounded stays below 1 then
      out[i] = 0.0f;
      return;
    }
    const float units = pulsora::min(pulsora::floor(size / unit), most);
    const float change = lag > 0.0f ? units * unit : -(units * unit);
    number = master.data ? number + change : number - change;
    const float pulses = perUnit > 0.0f ? whole(units * perUnit, v, col) : units;
    out[i] = lag > 0.0f ? pulses : -pulses;
  }

 private:
  PULSORA_HD float whole(float pulses, int64_t v, int64_t col) const {
    const float down = pulsora::floor(pulses);
    if (down == pulses) return pulses;
    const Philox4 drawn = draw(key, Purpose::PulseRound, static_cast<uint64_t>(col),
                               firstSample + static_cast<uint64_t>(v));
    return uniform(drawn.v[0]) < pulses - down ? down + 1.0f : down;
  }
};

/// The compound of MixedPrecisionParams: cells, and the digital numbers that they follow.
class MixedPrecisionDevice final : public AnalogDevice {
 public:
  MixedPrecisionDevice(const MixedPrecisionParams &params, const CompoundSite &site);

  int64_t dSize() const override { return cells_->dSize(); }
  int64_t xSize() const override { return cells_->xSize(); }
  std::vector<NamedArray> arrays() override { return cells_->arrays(); }
  std::vector<AnalogRead *> reads() override { return cells_->reads(); }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override {
    cells_->forward(context, x, y, c);
  }
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override {
    cells_->backward(context, d, dx, c);
  }
  /// Adds -lr d^T x to what cells lag behind.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  void prepareUpdate(const Context &context, int64_t samples, int64_t longest, float lr) override;
  bool updateMayBeCut(const Context &) const override { return true; }
  void postUpdate(const Context &context, float lr, const Counters &c) override;
  void prepareFollow(const Context &context) override;
  void follow(const Context &context, MatrixView<const float> master, const Counters &c) override;
  Value::Map calibrate(const Context &context, int64_t pairs, const Counters &c) override {
    return cells_->calibrate(context, pairs, c);
  }

  void getWeights(const Context &context, MatrixView<float> out) const override {
    cells_->getWeights(context, out);
  }
  /// Cells take the weights, and lag behind by nothing.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  size_t memoryBytes() const override {
    return cells_->memoryBytes() + sent_.heldBytes() + owed_.heldBytes();
  }
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

 private:
  int64_t rowsPerTransfer() const;
  int64_t piece() const;
  bool isDue() const { return schedule_.due(TransferSchedule::Unit::MiniBatches, 1); }
  MatrixView<float> matrix(Buffer<float> &buffer) const {
    return rowMajor(buffer.data(), dSize(), xSize());
  }
  Buffer<float> zerosUnless(const Context &context, bool exists) const;
  MatrixView<const float> binned(const Context &context, MatrixView<const float> in, bool isX,
                                 float factor, const Counters &c);
  void requireRoom(int64_t transfers) const;
  void reserveTransfer(const Context &context);
  void endBatch(const Context &context, const Counters &c, MatrixView<const float> master);
  void transfer(const Context &context, MatrixView<const float> master, MatrixView<float> digital);
  void send(const Context &context, const LineVisits &rows, MatrixView<const float> master,
            MatrixView<float> digital);

  MixedPrecisionParams params_;
  std::unique_ptr<CountedDevice> cells_;
  UpdateParameters trains_;
  RandomKey updateKey_, transferKey_;
  uint64_t *slots_;  // of the first array
  float step_;       // of a pulse
  float unit_;
  TransferSchedule schedule_;
  uint64_t rowsSent_ = 0;  // number of the next row that a transfer sends
  uint64_t origin_ = 0;    // number of the row that begins with row 0 (LineVisits)
  Buffer<float> sent_;     // the master as sent so far, if layers hold it
  Buffer<float> owed_;     // changes by update() that were not sent, if owes_
  bool owes_ = false;
  LineTrains lines_;
  ScratchBuffer<float> counts_, xBinned_, dBinned_, largest_;
};

}  // namespace pulsora
