#pragma once

#include <vector>

#include "compounds/array_group.h"
#include "compounds/retention_parameters.h"
#include "core/scratch.h"

namespace pulsora {

/// The arrays that take the pulses of a sample.
enum class UpdatePolicy { All, SingleFixed, SingleSequential, SingleRandom };
template <>
struct EnumNames<UpdatePolicy> {
  static constexpr const char *kNames[] = {"all", "single_fixed", "single_sequential",
                                           "single_random"};
};

/// Several arrays that act as one weight W = sum gamma_k W_k.
struct VectorParams : CompoundBase, RetentionParams {
  static constexpr const char *kKind = "vector";
  static constexpr const char *kName = "VectorConfig";
  static constexpr const char *kDoc = "Several arrays that act as one weight, W = sum gamma_k W_k.";

  DeviceList devices{DeviceParams(), DeviceParams()};
  FloatList gamma_vec;
  UpdatePolicy update_policy = UpdatePolicy::All;
  int first_update_idx = 0;
  GroupIo read_io = GroupIo::Shared;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = VectorParams;
    f(&P::devices, "devices", anyNumber(), "", "Device models of the arrays W_k, in order.");
    f(&P::gamma_vec, "gamma_vec", anyNumber(), "",
      "Factors gamma_k of the arrays in the weight, one for each device; empty is 1/n for each of "
      "n. Weights are written to every array as they are, so that they are read as written only if "
      "the factors add up to 1.");
    f(&P::update_policy, "update_policy", anyNumber(), "",
      "The arrays that take the pulses of a sample: 'all', with the same pulse trains; "
      "'single_fixed', the array first_update_idx, which alone takes written weights; "
      "'single_sequential', one after another from first_update_idx on; 'single_random', each with "
      "equal probability.");
    f(&P::first_update_idx, "first_update_idx", between(0, DeviceList::kMost - 1), "",
      "The array that 'single_fixed' pulses, and the first of 'single_sequential'.");
    f(&P::read_io, "read_io", anyNumber(), "", kGroupIoDoc);
    RetentionParams::fields(f);
  }

  template <class Check>
  void check(const Check &c) const {
    RetentionParams::check(c);
    const auto count = static_cast<int>(devices.size());
    c.require(gamma_vec.count == 0 || gamma_vec.count == count, c.path("gamma_vec"), " has ",
              gamma_vec.count, " factors for ", count,
              " devices; give one for each device, or none for 1/n each");
    bool any = gamma_vec.count == 0;
    for (int k = 0; k < gamma_vec.count; ++k) any = any || gamma_vec.values[k] != 0.0f;
    c.require(
        any, c.path("gamma_vec"),
        " is 0 for every device, so that the weight is always 0; give one factor that is not");
    c.require(first_update_idx < count, c.path("first_update_idx"), " is ", first_update_idx,
              ", but there are ", count, " devices, counted from 0");
  }

  float gamma(int k) const {
    return gamma_vec.count == 0 ? 1.0f / static_cast<float>(devices.size()) : gamma_vec.values[k];
  }
  CompoundFacts facts() const;
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
  static std::vector<CompoundVariant> variants();
};

/// The choice of the array that takes the pulses of a sample, by the sample's number.
struct ArrayChoice {
  bool random = false;
  uint32_t first = 0;
  uint32_t count = 1;
  RandomKey key{};

  PULSORA_HD uint32_t of(uint64_t sample) const {
    if (!random) return static_cast<uint32_t>((first + sample) % count);
    const Philox4 block = draw(key, Purpose::ArraySelect, 0, sample);
    return static_cast<uint32_t>(static_cast<uint64_t>(block.v[0]) * count >> 32);
  }
};

/// The rows of d of samples that are for array k; other rows are 0, which sends no pulse.
struct ChosenRows {
  MatrixView<const float> d;
  ArrayChoice choice;
  uint32_t k;
  uint64_t firstSample;
  float *out;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / d.cols;
    const bool chosen = choice.of(firstSample + static_cast<uint64_t>(row)) == k;
    out[i] = chosen ? d(row, i % d.cols) : 0.0f;
  }
};

/// A vector cell: n arrays of which all, or one for each sample, take the pulses of the gradient.
class VectorDevice final : public ArrayGroup {
 public:
  VectorDevice(const VectorParams &params, const CompoundSite &site);

  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  /// The steps of the arrays that take a pulse, weighted by their factors; where one array is
  /// chosen per sample, their mean.
  float countedStep() const override;
  void reserveCounts(const Context &context, int64_t visits) override;
  /// Arrays that are chosen per sample take a visit by its sample number.
  void applyCounts(const Context &context, const LinePulses &pulses) override;
  bool updateLooksForFaults(const Context &context, int64_t samples) const override;
  /// Writes the weights to every array, or with 'single_fixed' to the array that is pulsed.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;

 private:
  bool sharesTrains() const override { return pulsesAll(); }
  bool pulsesAll() const { return policy_ == UpdatePolicy::All; }
  bool pulsesOne() const { return policy_ == UpdatePolicy::SingleFixed; }
  float granularity() const;
  MatrixView<const float> rowsFor(const Context &context, size_t k, MatrixView<const float> d,
                                  uint64_t firstSample);

  UpdatePolicy policy_;
  size_t fixed_;
  ArrayChoice choice_;
  ScratchBuffer<float> rows_;  // of d, for one array after another
};

}  // namespace pulsora
