#pragma once

#include <vector>

#include "compounds/programmable.h"
#include "core/scratch.h"
#include "inference/inference_parameters.h"
#include "noise_models/realise.h"

namespace pulsora {

/// Floating-point weights W [d, x], of which reads see W / s, or a realisation of its programming;
/// the scale s of each output and the drift compensation are digital factors on the outputs.
class InferenceDevice final : public AnalogDevice, public Programmable {
 public:
  InferenceDevice(const InferenceParams &params, const CompoundSite &site);

  int64_t dSize() const override { return dSize_; }
  int64_t xSize() const override { return xSize_; }
  std::vector<NamedArray> arrays() override { return {}; }
  std::vector<AnalogRead *> reads() override;
  void boundReads(const Context &context) override;
  Programmable *programmable() override { return this; }

  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  /// W <- W - lr d^T x in floating point; a programming becomes stale.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  /// The weights, or what a perfect read of the programmed array sees, with its compensation.
  void getWeights(const Context &context, MatrixView<float> out) const override;
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  size_t memoryBytes() const override {
    return weights_.heldBytes() + wanted_.bytes() + realised_.bytes() + slices_.bytes() +
           pulsed_.bytes();
  }
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
  /// Saves weights and point: the array is made anew from them.
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

  bool isProgrammed() const override { return status_ != Status::Unprogrammed; }
  bool isStale() const override { return status_ == Status::Stale; }
  const ProgrammedPoint &point() const override { return point_; }
  void program(const Context &context, const ProgrammedPoint &point) override;
  void requireTime(double time) const override;
  void programMeasured(const Context &context, const float *conductances, uint64_t number) override;
  bool isMeasured() const override { return !measured_.empty(); }
  void programMany(const Context &context, const std::vector<ProgrammedPoint> &points) override;
  int64_t pointsOfRead() const override {
    return points_.empty() ? 1 : static_cast<int64_t>(points_.size());
  }
  void requireDrift(double time) const override {
    requireProgrammed();
    requireTime(time);
  }
  void drift(const Context &context, double time, uint64_t redraw) override;
  void unprogram(const Context &context) override;
  void take(const Context &context, MatrixView<const float> weights, bool isSame) override;
  void see(uint64_t number) override {
    if (params_.modifier_every == ModifierEvery::Forward) trainingRead_ = number;
  }
  TrainingRead trainingRead() const override { return {trainingRead_, isNewStep_}; }
  void restore(const TrainingRead &read) override {
    trainingRead_ = read.number;
    isNewStep_ = read.isNewStep;
  }
  MatrixView<const float> written() const override { return matrix(weights_); }
  int64_t devicesOfCell() const override {
    return parts_.count > 0 ? parts_.count * cell_.devices : cell_.devices;
  }
  void getConductances(const Context &context, Conductances which, float *out) override;
  void convertInputs(const Context &context, MatrixView<const float> x,
                     MatrixView<float> out) override {
    pass_.forward().convertInputs(context, x, out);
  }
  std::vector<float> scales(const Context &context) override;
  std::vector<float> compensation(const Context &context) const override;
  void setAdcGains(const Context &context, const std::vector<float> &gains) override;
  std::vector<float> adcGains(const Context &context) const override;
  Counters *readCounters() override { return isProgrammed() ? &counters_ : nullptr; }

 private:
  enum class Status { Unprogrammed, Programmed, Stale };

  /// A realisation: weights [dSize, xSize]; of slices with converters of their own, what these see
  /// [slices, dSize, xSize]; with a read window, the variances of what is read.
  struct RealisedArray {
    float *weights;
    float *slices;
    float *variance;
  };
  /// A point to be realised, and where the factors on its outputs go; null: its readout is the
  /// reference of others.
  struct PointOfArray {
    ProgrammedPoint point;
    RealisedArray to;
    float *outFactor;
  };
  /// The weights of a read, and of its slices; null, where it has none.
  struct Seen {
    const float *weights;
    const float *slices;
  };

  int64_t cells() const { return dSize_ * xSize_; }
  /// Whether the range of a cell reaches from the smallest to the largest weight.
  bool spansData() const { return params_.single_span == SingleSpan::Data; }
  bool writesPulses() const { return params_.write == WriteKind::Pulses; }
  /// Programmed conductances that are not those of the noise model; null: none.
  const Buffer<float> *given() const {
    if (isMeasured()) return &measured_;
    return pulsed_.empty() ? nullptr : &pulsed_;
  }
  bool isInParts() const { return parts_.count > 0; }
  /// Whether slices have converters of their own.
  bool isApart() const {
    return params_.cell == CellKind::Slices && params_.slice_converters == SliceConverters::Apart;
  }
  /// Arrays with converters of their own.
  int arraysOfRead() const { return isApart() ? parts_.count : 1; }
  /// Numbers that reads see of a realisation.
  int64_t numbersOfRead() const { return arraysOfRead() * cells(); }
  MatrixView<const float> matrix(const Buffer<float> &buffer) const {
    return rowMajor<const float>(buffer.data(), dSize_, xSize_);
  }
  /// The weights of reads, in units of the scales: in a training read (whose mini-batch
  /// trainingRead_ numbers), modified. StateError while the programming is stale.
  Seen seen(const Context &context, bool training);
  void reserveArray(const Context &context);
  RealisedArray realised() {
    return {realised_.data(), isApart() ? slices_.data() : nullptr, cellVariance()};
  }
  void modify(const Context &context);
  bool isWindowed() const { return params_.read_window > 0.0f; }
  float *cellVariance() { return isWindowed() ? variance_.data() : nullptr; }
  double modifierTime(uint64_t number) const;
  void normalise(const Context &context);
  void makeWanted(const Context &context);
  void takeMaxima(const Context &context, ScalingPer per, float *to);
  void takeSpans(const Context &context);
  const float *heldByCells(const Context &context);
  void takeQuantiles(const Context &context);
  void forwardMany(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                   uint64_t firstSample);
  void startProgramming(const Context &context, uint64_t number, uint64_t chip);
  void writePulses(const Context &context, uint64_t number, uint64_t chip);
  void addWriteStatistics(const Context &context, Value::Map &values) const;
  void conductancesAt(const Context &context, const ProgrammedPoint &point, Conductances which,
                      float *out);
  void useChip(const Context &context, uint64_t chip);
  void changed();
  void startReads();
  void requireProgrammed() const;
  /// A realisation of the cells, or of part k, which has no targets and results yet.
  Realisation realisation(const ProgrammedPoint &point, int k = 0) const;
  void realiseAt(const Context &context, const ProgrammedPoint &point, const RealisedArray &to);
  void readOut(const Context &context, const ProgrammedPoint &point, const RealisedArray &array,
               Buffer<double> &sums);
  /// Whether factors on outputs compare readouts with one at time 0.
  bool readsReference() const {
    return params_.compensation == Compensation::Global ||
           params_.compensation == Compensation::PerOutput;
  }
  void takeReference(const Context &context, const ProgrammedPoint &point);
  void compensate(const Context &context, const PointOfArray &array);
  void realiseCompensated(const Context &context, const PointOfArray &array);
  void realiseFirst(const Context &context, const ProgrammedPoint &point);
  /// Whether the cells of all devices are realised by one functor.
  bool isRealisedAtOnce() const { return !isInParts() && column_.empty() && !spansData(); }
  void realisePoints(const Context &context, const std::vector<PointOfArray> &points);
  void show(const ProgrammedPoint &point);
  void restoreScales(const Context &context);
  void setVariances(float *variances);
  /// Draws the noise of reads at a point; null: of reads of the weights.
  void keyReads(const ProgrammedPoint *point);
  void useGains();
  void loadGains(const Context &context, const State &state, const std::string &prefix);
  void countReads(HardwareCounts &counts, Pass pass, uint64_t samples) const;

  // Weights in parts: sliced_array.cpp.
  void makeSlices(const CompoundSite &site);
  ForwardBackwardPass &passOf(int k) {
    return k == 0 ? pass_ : otherPasses_[static_cast<size_t>(k - 1)];
  }
  const ForwardBackwardPass &passOf(int k) const {
    return k == 0 ? pass_ : otherPasses_[static_cast<size_t>(k - 1)];
  }
  AnalogRead &readoutOf(int k) {
    return k == 0 ? readout_ : otherReadouts_[static_cast<size_t>(k - 1)];
  }
  void realiseSlice(const Context &context, const ProgrammedPoint &point, int k, Realisation &r);
  void realiseSlices(const Context &context, const ProgrammedPoint &point, const RealisedArray &to);
  void sliceConductancesAt(const Context &context, const ProgrammedPoint &point, Conductances which,
                           float *out);
  void readSlices(const Context &context, Pass pass, const float *slices,
                  MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);
  void readOutSlices(const Context &context, const ProgrammedPoint &point,
                     const RealisedArray &array, Buffer<double> &sums);

  InferenceParams params_;
  CellEncoding cell_;  // of a part, where weights are in parts
  WeightParts parts_;
  TileKeys keys_;
  int64_t dSize_;
  int64_t xSize_;
  Buffer<float> weights_;                // W
  Buffer<float> wanted_;                 // W / s
  Buffer<float> realised_;               // what reads see of a programmed array
  Buffer<float> slices_;                 // of slices with converters of their own, instead
  Buffer<float> variance_;               // of these in a read; empty without a read window
  Buffer<float> measured_;               // programmed conductances; empty unless they were measured
  Buffer<float> pulsed_;                 // programmed conductances; empty unless by pulses
  Buffer<WriteCounts> writeCounts_;      // of the latest of these
  Buffer<float> column_;                 // weights of the reference column
  Buffer<float> scale_;                  // s of each output
  Buffer<float> centre_, half_;          // of the span of each output's cells; empty: symmetric
  Buffer<float> gains_;                  // of the ADCs [arraysOfRead(), dSize]; empty: 1
  Buffer<float> largest_;                // of each output: the magnitude that a modifier refers to
  Buffer<float> outFactor_;              // on each output: s times the compensation
  ScratchBuffer<float> scaled_;          // of updates and backward reads
  Buffer<float> factor_;                 // on each output: the compensation
  Buffer<float> rowMax_;                 // of each output: its largest magnitude
  Buffer<float> range_;                  // of the tile: the largest of rowMax_
  Buffer<double> sums_, reference_;      // of readings of each output: now, and to compare with
  Buffer<double> weighted_;              // sums of WeightedReadings
  std::vector<ProgrammedPoint> points_;  // of a read of several; empty: point_ alone
  Buffer<float> many_, manyVariances_, manyFactors_;  // what reads see, variances, factors there
  ForwardBackwardPass pass_;
  AnalogRead readout_;
  std::vector<ForwardBackwardPass> otherPasses_;  // of slices 1, 2, ..., if apart
  std::vector<AnalogRead> otherReadouts_;
  ScratchBuffer<float> plane_, slice_, sliceVariance_, pairs_;  // of one slice
  ScratchBuffer<float> start_;                                  // the array at time 0
  Status status_ = Status::Unprogrammed;
  bool dirty_ = true;          // whether W changed since s was made
  bool hasWanted_ = false;     // whether wanted_ holds W / s
  bool isModified_ = false;    // whether realised_ and outFactor_ are those of modifiedRead_
  uint64_t modifiedRead_ = 0;  // number of the training read that was made last
  uint64_t trainingRead_ = 0;  // number of the training read that backward reads belong to
  bool isNewStep_ = true;      // whether W changed since training reads were numbered
  ProgrammedPoint point_;
  uint64_t chip_ = 0;  // whose converters read
  Counters counters_;
  uint64_t pastForward_ = 0;  // samples that were read at earlier points
  uint64_t pastBackward_ = 0;
};

}  // namespace pulsora
