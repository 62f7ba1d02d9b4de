#pragma once

#include <vector>

#include "compounds/array_group.h"
#include "compounds/retention_parameters.h"
#include "core/scratch.h"

namespace pulsora {

/// The weights to which the array of references is programmed when a tile is made.
enum class ReferenceStart { Zero, SymmetricPoint };
template <>
struct EnumNames<ReferenceStart> {
  static constexpr const char *kNames[] = {"zero", "symmetric_point"};
};

/// An array and an array of references: W = W_0 - W_1.
struct ReferenceParams : CompoundBase, RetentionParams {
  static constexpr const char *kKind = "reference";
  static constexpr const char *kName = "ReferenceConfig";
  static constexpr const char *kDoc =
      "An array and an array of references that is never pulsed, W = W_0 - W_1.";

  DeviceParams visible;
  DeviceParams reference;
  ReferenceStart reference_start = ReferenceStart::Zero;
  int reference_pulses = 0;
  GroupIo read_io = GroupIo::Shared;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = ReferenceParams;
    f(&P::visible, "visible", anyNumber(), "",
      "Device model of W_0, which takes the pulses and the written weights.");
    f(&P::reference, "reference", anyNumber(), "",
      "Device model of W_1. Write `tile.arrays[\"reference\"]` to program it by hand.");
    f(&P::reference_start, "reference_start", anyNumber(), "",
      "What W_1 is programmed to when a tile is made: 'zero', or the 'symmetric_point' of each "
      "cell of W_0, within the bounds of W_1; the weight is then 0 at the point to which pulses "
      "pull it.");
    f(&P::reference_pulses, "reference_pulses", between(0, 100000), "pulse pairs",
      "Pairs of a pulse up and one down that find reference_start = 'symmetric_point', with the "
      "noise of pulses of these cells; 0 is exact.");
    f(&P::read_io, "read_io", anyNumber(), "", kGroupIoDoc);
    RetentionParams::fields(f);
  }
  CompoundFacts facts() const { return {"visible"}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
  static std::vector<CompoundVariant> variants();
};

/// A reference cell: pulses move W_0 alone.
class ReferenceDevice final : public ArrayGroup {
 public:
  ReferenceDevice(const ReferenceParams &params, const CompoundSite &site);

  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override {
    visible().update(context, x, d, lr, c.updateSamples);
  }
  void reserveUpdate(const Context &context, int64_t samples, float lr) override {
    visible().updater().reserve(context, visible().cells(), samples, lr);
  }
  float countedStep() const override { return visible().cells().granularity(); }
  void applyCounts(const Context &context, const LinePulses &pulses) override {
    visible().cells().applyToLines(context, pulses);
  }
  bool updateLooksForFaults(const Context &context, int64_t samples) const override;
  Value::Map calibrate(const Context &context, int64_t pairs, const Counters &c) override;
  /// W_0 <- weights + W_1.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;

 private:
  Crossbar &visible() { return at(0); }
  const Crossbar &visible() const { return at(0); }
  PulsedDevice &reference() { return at(1).cells(); }
  Value::Map describeError(const Context &context, int64_t pairs, int64_t without) const;

  RandomKey referenceKey_;  // of the pulses that find symmetric points
  ScratchBuffer<float> written_;
};

}  // namespace pulsora
