#pragma once

#include <vector>

#include "compounds/compound_model.h"
#include "compounds/programmable.h"
#include "inference/compensation.h"
#include "inference/realise.h"

namespace pulsora {

/// The weights that share a scale.
enum class ScalingPer { Output, Tile };
template <>
struct EnumNames<ScalingPer> {
  static constexpr const char *kNames[] = {"output", "tile"};
};

/// Weights that are trained digitally, and programmed once into an array whose devices drift.
struct InferenceParams : CompoundBase {
  static constexpr const char *kKind = "inference";
  static constexpr const char *kName = "InferenceConfig";
  static constexpr const char *kDoc =
      "Weights that are trained digitally, then programmed once into an array whose devices drift.";
  static constexpr bool kPulses = false;

  NoiseModelParams noise_model;
  CellKind cell = CellKind::Pair;
  FloatList significance = listOf(1.0f);
  CellReference reference = CellReference::Digital;
  int cell_bits = 0;
  float stuck_low = 0.0f;
  float stuck_high = 0.0f;
  ScalingPer scaling_per = ScalingPer::Output;
  Compensation compensation = Compensation::Global;
  CompensationRead compensation_read = CompensationRead::Converters;

  static TilePeriphery defaults() {
    TilePeriphery s;
    s.backward.is_perfect = true;
    return s;
  }
  template <class Visitor>
  static void fields(Visitor &f) {
    using P = InferenceParams;
    f(&P::noise_model, "noise_model", anyNumber(), "",
      "Programming error, drift and read noise of a device.");
    f(&P::cell, "cell", anyNumber(), "",
      "Devices of a weight: 'pair', one of which is at g_min; 'two_sided_pair', both of which carry "
      "half of it; 'pairs' of the factors `significance`; 'single', against a reference.");
    f(&P::significance, "significance", positive(), "",
      "Factors of the pairs of cell='pairs', in the order in which they are filled; at most 8.");
    f(&P::reference, "reference", anyNumber(), "",
      "Reference of cell='single': 'digital', half of the sum of the inputs is subtracted exactly; "
      "'column', by a column of cells at half of the range, programmed as well.");
    f(&P::cell_bits, "cell_bits", between(0, 16), "",
      "Bits of a target conductance; 0 is continuous.");
    f(&P::stuck_low, "stuck_low", probability(), "",
      "Share of devices that stay at g_min; a property of the chip.");
    f(&P::stuck_high, "stuck_high", probability(), "", "Share of devices that stay at g_max.");
    f(&P::scaling_per, "scaling_per", anyNumber(), "",
      "Weights whose largest magnitude uses the whole range of a cell: of each 'output', or of the "
      "'tile'.");
    f(&P::compensation, "compensation", anyNumber(), "",
      "Compensation of drift after programming: one factor from one-hot reads for the tile "
      "('global') or for each output ('per_output'), relative to the reads at time 0 or, "
      "'exact_reference', to the weights themselves; or 'none'.");
    f(&P::compensation_read, "compensation_read", anyNumber(), "",
      "The one-hot reads of the compensation: through the 'converters' of the forward read with "
      "their noise, or 'exact'.");
  }
  template <class Check>
  void check(const Check &c) const {
    c.require(significance.count >= 1 && 2 * significance.count <= CellEncoding::kMostDevices,
              c.path("significance"), " has ", significance.count,
              " entries; give the factors of 1 to ", CellEncoding::kMostDevices / 2, " pairs");
    c.require(cell == CellKind::Pairs || significance.count == 1, c.path("significance"), " has ",
              significance.count, " entries, and ", c.path("cell"),
              " has one pair at most; choose cell='pairs'");
    c.require(cell == CellKind::Single || reference == CellReference::Digital, c.path("reference"),
              " is 'column', and cells of pairs need no reference; choose cell='single'");
    c.require(stuck_low + stuck_high <= 1.0f, c.path("stuck_low"), " and ", c.path("stuck_high"),
              " are ", stuck_low, " and ", stuck_high, "; their sum must be <= 1");
  }
  CompoundFacts facts() const { return {"", /*pulsesWritten=*/false}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

/// Floating-point weights W [d, x], of which reads see W / s, or a realisation of its programming;
/// the scale s of each output and the drift compensation are digital factors on the outputs.
class InferenceDevice final : public AnalogDevice, public Programmable {
 public:
  InferenceDevice(const InferenceParams &params, const CompoundSite &site);

  int64_t dSize() const override { return dSize_; }
  int64_t xSize() const override { return xSize_; }
  std::vector<NamedArray> arrays() override { return {}; }
  std::vector<AnalogRead *> reads() override { return {&pass_.forward(), &pass_.backward()}; }
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
  Value::Map statistics(const Context &context) const override;
  /// Saves weights and point: the array is made anew from them.
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

  bool isProgrammed() const override { return status_ != Status::Unprogrammed; }
  bool isStale() const override { return status_ == Status::Stale; }
  const ProgrammedPoint &point() const override { return point_; }
  bool program(const Context &context, uint64_t number) override;
  void requireDrift(double time) const override {
    requireProgrammed();
    requireTime(time);
  }
  void drift(const Context &context, double time, uint64_t redraw) override;
  void unprogram() override;
  MatrixView<const float> written() const override { return matrix(weights_); }
  int64_t devicesOfCell() const override { return cell_.devices; }
  void getConductances(const Context &context, Conductances which, float *out) override;
  const std::vector<float> &compensation() const override { return factors_; }
  Counters *readCounters() override { return isProgrammed() ? &counters_ : nullptr; }

 private:
  enum class Status { Unprogrammed, Programmed, Stale };

  MatrixView<const float> matrix(const Buffer<float> &buffer) const {
    return rowMajor<const float>(buffer.data(), dSize_, xSize_);
  }
  /// What reads see, in units of the scales; StateError while the programming is stale.
  MatrixView<const float> seen(const Context &context);
  void normalise(const Context &context);
  void changed();
  void requireProgrammed() const;
  void requireTime(double time) const;
  Realisation realisation(const ProgrammedPoint &point) const;
  void realiseAt(const Context &context, const ProgrammedPoint &point);
  std::vector<double> readout(const Context &context, const ProgrammedPoint &point);
  void makeReference(const Context &context);
  void moveTo(const Context &context, const ProgrammedPoint &point);
  void setFactors(const Context &context);

  InferenceParams params_;
  CellEncoding cell_;
  TileKeys keys_;
  int64_t dSize_;
  int64_t xSize_;
  Buffer<float> weights_;    // W
  Buffer<float> wanted_;     // W / s
  Buffer<float> realised_;   // what reads see of a programmed array
  Buffer<float> column_;     // weights of the reference column
  Buffer<float> scale_;      // s of each output
  Buffer<float> outFactor_;  // on each output: s times the compensation
  Buffer<float> scaled_;     // scratch of updates and backward reads
  Buffer<double> sums_;      // of each output
  std::vector<float> hostScale_, factors_;
  std::vector<double> reference_;
  ForwardBackwardPass pass_;
  AnalogRead readout_;
  Status status_ = Status::Unprogrammed;
  bool dirty_ = true;  // whether W changed since W / s was made
  ProgrammedPoint point_;
  Counters counters_;
};

}  // namespace pulsora
