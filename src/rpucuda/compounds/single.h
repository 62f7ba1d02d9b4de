#pragma once

#include "compounds/compound_model.h"
#include "compounds/counted_device.h"
#include "compounds/retention_parameters.h"

namespace pulsora {

/// One pulsed array of one device model.
struct SingleParams : CompoundBase, RetentionParams {
  static constexpr const char *kKind = "single";
  static constexpr const char *kName = "SingleConfig";
  static constexpr const char *kDoc = "One pulsed array of one device model.";

  DeviceParams device;

  template <class Visitor>
  static void fields(Visitor &f) {
    f(&SingleParams::device, "device", anyNumber(), "", "Device model of a single array.");
    RetentionParams::fields(f);
  }
  CompoundFacts facts() const { return {"device"}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

/// One pulsed array that is the weight: full-rank analog SGD.
class SingleDevice final : public CountedDevice {
 public:
  SingleDevice(const SingleParams &params, const CompoundSite &site);

  int64_t dSize() const override { return visible_.rows(); }
  int64_t xSize() const override { return visible_.cols(); }
  std::vector<NamedArray> arrays() override { return {{"visible", &visible_}}; }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override {
    visible_.updater().reserve(context, visible_.cells(), samples, lr);
  }
  float countedStep() const override { return visible_.cells().granularity(); }
  void applyCounts(const Context &context, const LinePulses &pulses) override {
    visible_.cells().applyToLines(context, pulses);
  }
  bool updateLooksForFaults(const Context &context, int64_t samples) const override;
  void getWeights(const Context &context, MatrixView<float> out) const override;
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  /// The array is saved directly under `prefix`, without its name.
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

 private:
  Crossbar visible_;
};

}  // namespace pulsora
