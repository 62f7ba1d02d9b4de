#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compounds/compound_model.h"
#include "compounds/counted_device.h"
#include "compounds/weighted_arrays.h"
#include "core/scratch.h"

namespace pulsora {

/// The periphery by which a weight of several arrays is read.
enum class GroupIo {
  Shared,    ///< the sum is read at once, through the periphery of the first array
  PerArray,  ///< each array is read through a periphery of its own, and the results are added
};
template <>
struct EnumNames<GroupIo> {
  static constexpr const char *kNames[] = {"shared", "per_array"};
};
/// Documentation of a parameter of this type.
constexpr const char *kGroupIoDoc =
    "'shared': the weighted sum of the arrays is read through one periphery; 'per_array': each "
    "array is read through a periphery of its own, and the results are added with their factors.";

/// An array of a group: its name, its device, and its factor in the weight.
struct GroupMember {
  std::string name;
  DeviceParams device;
  float gamma;
};

/// Arrays of the size of a tile that act as one weight, W = sum gamma_k W_k: the reads and the
/// weight of a compound. Derived classes define how arrays are written and pulsed.
class ArrayGroup : public CountedDevice {
 public:
  int64_t dSize() const override { return arrays_.front()->rows(); }
  int64_t xSize() const override { return arrays_.front()->cols(); }
  std::vector<NamedArray> arrays() override;
  std::vector<AnalogRead *> reads() override;
  void boundReads(const Context &context) override;
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override {
    read(context, Pass::Forward, x, y, c.forwardSamples);
  }
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override {
    read(context, Pass::Backward, d, dx, c.backwardSamples);
  }
  void getWeights(const Context &context, MatrixView<float> out) const override {
    weight_.write(context, out);
  }
  size_t memoryBytes() const override {
    return AnalogDevice::memoryBytes() + weight_.memoryBytes();
  }
  void dropSums() override { weight_.drop(); }
  void countHardware(const Counters &c, HardwareCounts &counts) const override;

 protected:
  /// Array k takes slot k of the tile.
  ArrayGroup(const CompoundSite &site, const std::vector<GroupMember> &members, GroupIo io);

  /// Whether all arrays take the pulse trains of the first one.
  virtual bool sharesTrains() const { return false; }
  size_t size() const { return arrays_.size(); }
  Crossbar &at(size_t k) { return *arrays_[k]; }
  const Crossbar &at(size_t k) const { return *arrays_[k]; }
  float gamma(size_t k) const { return gammas_[k]; }

 private:
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample);
  std::vector<const PulsedDevice *> cells() const;

  std::vector<std::string> names_;
  std::vector<float> gammas_;
  GroupIo io_;
  std::vector<std::unique_ptr<Crossbar>> arrays_;
  WeightedArrays weight_;
  ScratchBuffer<float> result_;  // of one array, where each is read by itself
};

}  // namespace pulsora
