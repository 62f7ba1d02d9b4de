#include <gtest/gtest.h>

#include "array/array_list.h"
#include "array/device_contract.h"
#include "array/pulsed_device.h"
#include "array/pulsed_weight_updater.h"
#include "cuda/cuda_test_util.h"

// Cells, words, counts and weights are the same bits on the GPU as on the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

const std::vector<PulseType> kAllPulseTypes = {
    PulseType::StochasticCompressed,  PulseType::Stochastic, PulseType::MeanCount,
    PulseType::DeterministicImplicit, PulseType::None,       PulseType::NoneWithDevice};

/// One array with its updater on one backend.
class Rig {
 public:
  Rig(const Context &context, const DeviceParams &device, const UpdateParameters &update,
      int64_t rows, int64_t cols)
      : context_(context),
        array_(context, device, rows, cols, makeKey(7, 3, 1)),
        updater_(update, makeKey(7, 3, 2)) {}

  void update(const Batch &batch, float lr) {
    const DeviceBatch on(context_, batch);
    updater_.update(context_, array_, on.x.view(), on.d.view(), lr, samples_);
    samples_ += static_cast<uint64_t>(batch.samples);
  }
  void endMiniBatch() { array_.relax(context_, batches_++); }
  void reset() {
    array_.resetColumns(context_, array_.cols() / 2, array_.cols(), 0.3f, batches_++);
  }
  void write(const Batch &values) {
    const DeviceMatrix weights(
        context_, rowMajor<const float>(values.x.data(), array_.rows(), array_.cols()));
    array_.setWeights(context_, weights.view(), batches_++);
  }
  void addReferences(int64_t pairs) { array_.addReferences(context_, pairs, makeKey(7, 3, 3)); }
  State state() const {
    State state;
    array_.saveTo(context_, state, "");
    return state;
  }
  std::vector<float> describe() const {
    const Buffer<float> planes = array_.describeCells(context_);
    std::vector<float> host(static_cast<size_t>(planes.size()));
    detail::copyToHost(context_, host.data(), planes.data(), planes.bytes());
    return host;
  }
  int64_t saturated() const { return array_.saturatedCells(context_); }

 private:
  Context context_;
  PulsedDevice array_;
  PulsedWeightUpdater updater_;
  uint64_t samples_ = 0;
  uint64_t batches_ = 0;
};

struct Case {
  int64_t rows, cols;
  int updates;
};

void expectSameTraining(const DeviceParams &device, const UpdateParameters &update,
                        const Case &size) {
  Rig cpu(cpuContext(), device, update, size.rows, size.cols);
  Rig gpu(gpuContext(), device, update, size.rows, size.cols);
  ASSERT_TRUE(sameState(cpu.state(), gpu.state())) << "after construction";
  const int64_t batches[] = {1, 7, 64};
  for (int n = 0; n < size.updates; ++n) {
    const Batch batch =
        trainingBatch(batches[n % 3], size.cols, size.rows, n % 2 == 0, static_cast<uint64_t>(n));
    const float lr = n % 5 == 4 ? -0.05f : 0.05f;
    cpu.update(batch, lr);
    gpu.update(batch, lr);
    cpu.endMiniBatch();
    gpu.endMiniBatch();
    if (n >= 6 && n + 1 < size.updates) continue;
    ASSERT_TRUE(sameState(cpu.state(), gpu.state())) << "after update " << n;
  }
  EXPECT_EQ(cpu.saturated(), gpu.saturated());
}

std::string nameOf(PulseType type) { return EnumNames<PulseType>::kNames[static_cast<int>(type)]; }

TEST(CudaUpdate, Property36_EveryModelAndPulseTypeGivesTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    for (const PulseType type : kAllPulseTypes) {
      UpdateParameters update;
      update.pulse_type = type;
      for (const Case &size :
           {Case{1, 1, 50}, Case{3, 5, 50}, Case{64, 64, 50}, Case{257, 129, 50}}) {
        SCOPED_TRACE(message(model.name, ", ", nameOf(type), ", ", size.rows, " x ", size.cols));
        expectSameTraining(makeParams(model.name), update, size);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaUpdate, Property36_LargeArrays) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    for (const PulseType type : kAllPulseTypes) {
      SCOPED_TRACE(message(model.name, ", ", nameOf(type)));
      UpdateParameters update;
      update.pulse_type = type;
      expectSameTraining(makeParams(model.name), update, {1024, 1000, 50});
      if (HasFailure()) return;
    }
  }
  // Enough cells for the kernel that holds several rows per thread, with a row and a column left
  // over.
  expectSameTraining(makeParams("SoftBounds"), UpdateParameters{}, {1451, 1473, 3});
  expectSameTraining(makeParams("ConstantStep"), UpdateParameters{}, {100001, 3, 3});
}

TEST(CudaUpdate, Property36_EverySettingOfTrains) {
  PULSORA_REQUIRE_GPU();
  std::vector<UpdateParameters> all;
  for (const int length : {1, 2, 5, 16, 17, 31, 32, 33, 100}) {
    for (const bool managed : {false, true}) {
      UpdateParameters update;
      update.desired_bl = length;
      update.update_bl_management = managed;
      update.update_management = managed;
      all.push_back(update);
    }
  }
  UpdateParameters free;
  free.fixed_bl = false;
  free.update_bl_management = false;
  all.push_back(free);
  UpdateParameters rounded;
  rounded.res = 0.02f;
  rounded.sto_round = true;
  rounded.um_grad_scale = 0.5f;
  rounded.x_res_implicit = rounded.d_res_implicit = 0.1f;
  all.push_back(rounded);
  for (UpdateParameters update : all) {
    for (const PulseType type : kAllPulseTypes) {
      update.pulse_type = type;
      SCOPED_TRACE(message(nameOf(type), ", desired_bl ", update.desired_bl, ", managed ",
                           update.update_bl_management));
      expectSameTraining(makeParams("SoftBounds"), update, {33, 70, 6});
      if (HasFailure()) return;
    }
  }
}

TEST(CudaUpdate, Property36_PulsesOneWay) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    for (const PulseType type : kAllPulseTypes) {
      if (isDigital(type)) continue;
      for (const int length : {1, 31, 40}) {
        for (const char *merge : {"none", "batch"}) {
          if (merge == std::string("batch") && model.name != "ConstantStep" &&
              model.name != "SoftBounds")
            continue;
          const DeviceParams device = makeParams(model.name, {{"noise_merge", Value(merge)}});
          UpdateParameters update;
          update.pulse_type = type;
          update.desired_bl = length;
          const Batch batch = trainingBatch(19, 70, 33, true, 3);
          State states[2];
          for (const bool onGpu : {false, true}) {
            const Context context = onGpu ? gpuContext() : cpuContext();
            const DeviceBatch on(context, batch);
            PulsedDevice plus(context, device, 33, 70, makeKey(7, 3, 1));
            PulsedDevice minus(context, device, 33, 70, makeKey(7, 3, 4));
            PulsedWeightUpdater updater(update, makeKey(7, 3, 2));
            updater.makeWords(context, plus.granularity(), on.x.view(), on.d.view(), 0.05f,
                              SampleRange{5, batch.samples, nullptr}, nullptr);
            PulseWords up = updater.words(), down = updater.words();
            up.way = PulseWay::Up;
            down.way = PulseWay::DownAsUp;
            const ArrayPulses both[] = {{&plus, &up}, {&minus, &down}};
            PulsedDevice::applyPulsesToEach(context, both, 2);
            plus.saveTo(context, states[onGpu], "plus/");
            minus.saveTo(context, states[onGpu], "minus/");
          }
          ASSERT_TRUE(sameState(states[0], states[1]))
              << model.name << ", " << nameOf(type) << ", desired_bl " << length << ", " << merge;
        }
      }
    }
  }
}

TEST(CudaUpdate, Property36_EveryEffectOfCells) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    for (const char *noise : {"closed_form", "sequential"}) {
      SCOPED_TRACE(message(model.name, ", ", noise));
      const DeviceParams device = makeParams(model.name, {{"lifetime", Value(20.0)},
                                                          {"lifetime_dtod", Value(0.3)},
                                                          {"diffusion", Value(0.01)},
                                                          {"diffusion_dtod", Value(0.2)},
                                                          {"reset", Value(0.05)},
                                                          {"reset_dtod", Value(0.02)},
                                                          {"write_noise_std", Value(1.5)},
                                                          {"corrupt_devices_prob", Value(0.1)},
                                                          {"perfect_bias", Value(true)},
                                                          {"up_down", Value(0.1)},
                                                          {"pulse_noise", Value(noise)}});
      Rig cpu(cpuContext(), device, UpdateParameters{}, 40, 37);
      Rig gpu(gpuContext(), device, UpdateParameters{}, 40, 37);
      for (Rig *rig : {&cpu, &gpu}) {
        rig->write(randomBatch(40, 37, 1, 99));
        for (uint64_t n = 0; n < 10; ++n) {
          rig->update(trainingBatch(9, 37, 40, n % 2 == 0, n), 0.1f);
          rig->endMiniBatch();
          if (n == 4) rig->reset();
        }
      }
      ASSERT_TRUE(sameState(cpu.state(), gpu.state()));
      ASSERT_TRUE(sameBits(cpu.describe(), gpu.describe()));
    }
  }
}

TEST(CudaUpdate, Property36_ReferencesOfEveryModel) {
  PULSORA_REQUIRE_GPU();
  for (const DeviceModel &model : deviceModels()) {
    for (const int64_t pairs : {0, 25}) {
      SCOPED_TRACE(message(model.name, ", ", pairs));
      const DeviceParams device = makeParams(model.name, {{"up_down", Value(0.2)},
                                                          {"up_down_dtod", Value(0.1)},
                                                          {"write_noise_std", Value(1.5)},
                                                          {"corrupt_devices_prob", Value(0.1)}});
      Rig cpu(cpuContext(), device, UpdateParameters{}, 40, 37);
      Rig gpu(gpuContext(), device, UpdateParameters{}, 40, 37);
      for (Rig *rig : {&cpu, &gpu}) {
        rig->addReferences(pairs);
        rig->write(randomBatch(40, 37, 1, 99));
        rig->update(trainingBatch(9, 37, 40, true, 1), 0.1f);
      }
      ASSERT_TRUE(sameState(cpu.state(), gpu.state()));
      ASSERT_TRUE(sameBits(cpu.describe(), gpu.describe()));
    }
  }
}

TEST(CudaUpdate, Property36_WordsAreThoseOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Context host = cpuContext();
  const Context gpu = gpuContext();
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
    for (const bool sparse : {true, false}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 40) + 3}) {
        UpdateParameters update;
        update.pulse_type = type;
        const Batch batch = trainingBatch(37, 130, 77, sparse, first);
        const DeviceBatch on(gpu, batch);
        BitLineMaker ours, theirs;
        ours.makeWords(host, batch.xView(), batch.dView(), 0.05f, 0.001f, update, makeKey(1, 2, 3),
                       first);
        theirs.makeWords(gpu, on.x.view(), on.d.view(), 0.05f, 0.001f, update, makeKey(1, 2, 3),
                         first);
        const PulseWords &a = ours.words();
        const PulseWords &b = theirs.words();
        PulseLayout layout;
        detail::copyToHost(gpu, &layout, b.layout, sizeof layout);
        ASSERT_EQ(layout.slots, a.layout->slots);
        const int64_t words = layout.words(batch.samples);
        const auto expectPlane = [&](const uint32_t *expected, const uint32_t *got, int64_t lines) {
          std::vector<uint32_t> plane(static_cast<size_t>(words * lines));
          detail::copyToHost(gpu, plane.data(), got, plane.size() * sizeof(uint32_t));
          EXPECT_EQ(std::vector<uint32_t>(expected, expected + plane.size()), plane);
        };
        expectPlane(a.xBits, b.xBits, batch.xSize);
        expectPlane(a.xSigns, b.xSigns, batch.xSize);
        expectPlane(a.dBits, b.dBits, batch.dSize);
        expectPlane(a.dSigns, b.dSigns, batch.dSize);
        if (type == PulseType::Stochastic)
          expectPlane(a.dBitsNegativeX, b.dBitsNegativeX, batch.dSize);
        EXPECT_EQ(ours.stats(host).slots, theirs.stats(gpu).slots);
      }
    }
  }
}

/// The arrays of a list on the GPU are those one by one there, which are those of the CPU.
void expectListOnGpu(const std::vector<ListedArray> &list) {
  expectListIsOneByOne(gpuContext(), list);
  const std::vector<State> cpu = updatedArrays(cpuContext(), list, true);
  const std::vector<State> gpu = updatedArrays(gpuContext(), list, true);
  for (size_t k = 0; k < list.size(); ++k)
    EXPECT_TRUE(sameState(cpu[k], gpu[k])) << "array " << k << " of " << list.size();
}

class CudaUpdateOfModel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, CudaUpdateOfModel, ::testing::ValuesIn(modelNames()),
                         [](const auto &model) { return model.param; });

TEST_P(CudaUpdateOfModel, Property36_AListOfArraysLeavesTheBitsOfOneByOne) {
  PULSORA_REQUIRE_GPU();
  const DeviceParams device = makeParams(GetParam(), {{"write_noise_std", Value(1.5)}});
  // Narrow and wide, one slot (sparse), dense, and trains of several words.
  const std::vector<ListedArray> all = {{device, 64, 4},
                                        {device, 4, 300, 31, 64},
                                        {device, 257, 129, 1},
                                        {device, 3, 5, 100},
                                        {device, 70, 33, 8, 1}};
  for (const int count : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(message(count, " arrays"));
    expectListOnGpu({all.begin(), all.begin() + count});
    if (HasFailure()) return;
  }
}

TEST(CudaUpdate, Property36_AListMayMixModelsMergedNoiseAndEmptyBatches) {
  PULSORA_REQUIRE_GPU();
  const DeviceParams soft = makeParams("SoftBounds");
  const DeviceParams constant = makeParams("ConstantStep");
  const DeviceParams merging = makeParams("ConstantStep", {{"noise_merge", Value("batch")}});
  const DeviceParams inOrder = makeParams("SoftBounds", {{"noise_merge", Value("batch")}});
  const ListedArray softArray{soft, 40, 37}, constantArray{constant, 33, 70},
      mergingArray{merging, 64, 64}, inOrderArray{inOrder, 40, 37},
      emptyArray{constant, 8, 8, 31, 0};
  const std::vector<std::vector<ListedArray>> lists = {
      {softArray, constantArray},
      {softArray, constantArray, softArray},
      {constantArray, mergingArray, constantArray},
      {mergingArray, mergingArray},
      {softArray, inOrderArray, softArray},
      {constantArray, emptyArray, constantArray},
      {emptyArray, emptyArray},
      {softArray, softArray, softArray, constantArray, constantArray, mergingArray, softArray}};
  for (size_t i = 0; i < lists.size(); ++i) {
    SCOPED_TRACE(message("list ", i));
    expectListOnGpu(lists[i]);
  }
}

TEST(CudaUpdate, Property37_SplitBatches) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const Batch batch = trainingBatch(64, 65, 33, true, 1);
  State whole;
  for (const int64_t part : {64, 1, 3, 8, 40}) {
    PulsedDevice array(gpu, makeParams("SoftBounds"), 33, 65, makeKey(1, 1, 1));
    PulsedWeightUpdater updater({}, makeKey(1, 1, 2));
    const DeviceBatch on(gpu, batch);
    for (int64_t start = 0; start < 64; start += part) {
      const int64_t count = std::min<int64_t>(part, 64 - start);
      updater.update(gpu, array, on.x.view().block(start, 0, count, 65),
                     on.d.view().block(start, 0, count, 33), 0.1f, static_cast<uint64_t>(start));
    }
    State state;
    array.saveTo(gpu, state, "");
    if (part == 64) whole = state;
    EXPECT_TRUE(sameState(whole, state)) << "parts of " << part;
  }
}

}  // namespace
}  // namespace pulsora
