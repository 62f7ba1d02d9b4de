#include <gtest/gtest.h>
#include <tuple>

#include "array/pulsed_device.h"
#include "array/pulsed_weight_updater.h"
#include "cuda/cuda_test_util.h"

// noise_merge = "batch" gives the bits of the CPU on the GPU, whatever the path of the kernels.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

DeviceParams mergingDevice(const std::string &model, Value::Map values) {
  // Spreads as by default; small bounds, so that many cells are near one.
  values["noise_merge"] = "batch";
  values["corrupt_devices_prob"] = 0.02;
  values["up_down"] = 0.1;
  values["w_max"] = 0.3;
  values["w_min"] = -0.3;
  return makeParams(model, std::move(values));
}

/// Models whose noise can be merged; the others than ConstantStep take samples in their order.
std::vector<DeviceParams> mergingDevices() {
  std::vector<DeviceParams> all = {mergingDevice("ConstantStep", {})};
  for (const bool multiplicative : {true, false}) {
    const Value noise(multiplicative);
    all.push_back(mergingDevice("SoftBounds", {{"mult_noise", noise}}));
    all.push_back(mergingDevice(
        "SoftBoundsReference",
        {{"mult_noise", noise}, {"reference_std", Value(0.05)}, {"slope_up_dtod", Value(0.1)}}));
    all.push_back(mergingDevice(
        "LinearStep",
        {{"mult_noise", noise}, {"gamma_up", Value(0.3)}, {"gamma_down", Value(0.5)}}));
  }
  return all;
}

struct Case {
  int64_t rows, cols;
  std::vector<int64_t> batches;
};

State trained(const Context &context, const DeviceParams &device, const UpdateParameters &update,
              const Case &size) {
  PulsedDevice array(context, device, size.rows, size.cols, makeKey(7, 3, 1));
  PulsedWeightUpdater updater(update, makeKey(7, 3, 2));
  uint64_t sample = 0;
  for (size_t n = 0; n < size.batches.size(); ++n) {
    const int64_t samples = size.batches[n];
    const DeviceBatch batch(context,
                            trainingBatch(samples, size.cols, size.rows, n % 3 == 1, n + 1));
    updater.update(context, array, batch.x.view(), batch.d.view(), n % 4 == 3 ? -0.05f : 0.05f,
                   sample);
    sample += static_cast<uint64_t>(samples);
  }
  State state;
  array.saveTo(context, state, "");
  return state;
}

void expectSameTraining(const UpdateParameters &update, const Case &size) {
  const std::vector<DeviceParams> devices = mergingDevices();
  for (size_t i = 0; i < devices.size(); ++i) {
    SCOPED_TRACE(message(devices[i].model().name, ", setting ", i));
    ASSERT_TRUE(sameState(trained(cpuContext(), devices[i], update, size),
                          trained(gpuContext(), devices[i], update, size)));
  }
}

class CudaBatchNoiseOfTrains : public ::testing::TestWithParam<std::tuple<PulseType, int>> {};

INSTANTIATE_TEST_SUITE_P(
    Settings, CudaBatchNoiseOfTrains,
    ::testing::Combine(::testing::Values(PulseType::StochasticCompressed, PulseType::Stochastic,
                                         PulseType::MeanCount, PulseType::DeterministicImplicit),
                       ::testing::Values(1, 2, 5, 10, 16, 17, 31, 32, 33, 100)));

TEST_P(CudaBatchNoiseOfTrains, Property36_GivesTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const bool managed : {false, true}) {
    UpdateParameters update;
    std::tie(update.pulse_type, update.desired_bl) = GetParam();
    update.update_bl_management = update.update_management = managed;
    for (const Case &size : {Case{33, 70, {7, 64, 1, 9}}, Case{3, 5, {64, 64, 64}}}) {
      SCOPED_TRACE(message(EnumNames<PulseType>::kNames[static_cast<int>(update.pulse_type)],
                           ", desired_bl ", update.desired_bl, ", managed ", managed, ", ",
                           size.rows, " x ", size.cols));
      expectSameTraining(update, size);
      if (HasFailure()) return;
    }
  }
}

TEST(CudaBatchNoise, Property36_TilesGiveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  // Enough cells for the tensor cores; whole tiles, and rows and columns left over, also so that
  // four or eight neighbouring cells lie in two rows.
  for (const Case &size :
       {Case{1024, 1024, {64, 3, 40}}, Case{1031, 1024, {64, 7}}, Case{1031, 1032, {33}},
        Case{1025, 1028, {40, 7}}, Case{1025, 1031, {64, 40}}, Case{1037, 1030, {64}}}) {
    for (const int length : {1, 3, 10, 31, 32, 50}) {
      UpdateParameters update;
      update.desired_bl = length;
      update.update_bl_management = length > 10;
      SCOPED_TRACE(message("desired_bl ", length, ", ", size.rows, " x ", size.cols));
      expectSameTraining(update, size);
      if (HasFailure()) return;
    }
  }
}

TEST(CudaBatchNoise, Property36_WideAndTallArrays) {
  PULSORA_REQUIRE_GPU();
  for (const Case &size : {Case{100001, 11, {5, 64}}, Case{11, 100001, {5, 64}},
                           Case{70, 16411, {64}}, Case{16411, 64, {64}}}) {
    SCOPED_TRACE(message(size.rows, " x ", size.cols));
    expectSameTraining(UpdateParameters{}, size);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pulsora
