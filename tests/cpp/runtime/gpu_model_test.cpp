#include "runtime/gpu_model.h"

#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "array/make_device_model.h"
#include "cuda/array/model_launches.h"
#include "devices/constant_step.h"
#include "devices/piecewise_step.h"
#include "devices/soft_bounds.h"
#include "devices/table_step.h"
#include "runtime/plugin_facts.h"
#include "util/message_test_util.h"

// A model that a GPU describes, without a GPU: what one thread of it would write is written here.
// tests/python/test_cuda_source.py lets a GPU do so.

namespace pulsora {
namespace {

template <class Device>
std::string facts(std::string_view params) {
  std::string text(1 << 16, '\0');
  plugin::FactsWriter writer{text.data(), text.size()};
  if (params.empty()) {
    plugin::tellModel<Device>(writer);
  } else {
    EXPECT_EQ(params.size(), sizeof(typename Device::Params));
    plugin::tellParams<Device>(*reinterpret_cast<const typename Device::Params *>(params.data()),
                               writer);
  }
  EXPECT_LE(writer.size, text.size());
  return text.substr(0, writer.size);
}

/// What was launched last.
struct Launched {
  int kernel = -1;
  unsigned blocks = 0;
  unsigned threads = 0;
  std::vector<std::string> arguments;
  uint64_t cleared = 0;
};
Launched &launched() {
  static Launched last;
  return last;
}

const PluginLauncher &recorder() {
  static const PluginLauncher kRecorder = {
      nullptr,
      [](void *, int32_t kernel, uint32_t blocks, uint32_t threads, const void *const *arguments,
         const uint64_t *sizes, uint32_t count, void *) {
        launched() = {kernel, blocks, threads, {}, launched().cleared};
        for (uint32_t i = 0; i < count; ++i)
          launched().arguments.emplace_back(static_cast<const char *>(arguments[i]), sizes[i]);
      },
      [](void *, void *, uint64_t bytes, void *) { launched().cleared += bytes; },
      [](void *) { return 1; }};
  return kRecorder;
}

/// Launches of a model whose struct is known, recorded in the same way.
struct KnownLauncher {
  template <gpu::ModelKernel kernel, class... Arguments>
  static void launch(void *stream, unsigned blocks, unsigned threads, const Arguments &...each) {
    const void *const list[] = {static_cast<const void *>(&each)...};
    const uint64_t sizes[] = {sizeof(Arguments)...};
    recorder().launch(nullptr, static_cast<int32_t>(kernel), blocks, threads, list, sizes,
                      sizeof...(Arguments), stream);
  }
  static void clear(void *data, uint64_t bytes, void *stream) {
    recorder().clear(nullptr, data, bytes, stream);
  }
  static bool multipliesBits() { return true; }
};

template <class Device>
class GpuModel : public ::testing::Test {
 protected:
  const DeviceModel known_ = makeDeviceModel<Device>();
  const DeviceModel made_ = gpuModel(&facts<Device>, recorder(), "there is no compiler");
};
using Models = ::testing::Types<SoftBounds, ConstantStep, PiecewiseStep, TableStep>;
TYPED_TEST_SUITE(GpuModel, Models);

TYPED_TEST(GpuModel, IsDescribedAsTheBuiltInOne) {
  EXPECT_EQ(this->made_.name, this->known_.name);
  EXPECT_EQ(this->made_.doc, this->known_.doc);
  EXPECT_EQ(this->made_.cellMembers, this->known_.cellMembers);
  ASSERT_EQ(this->made_.fields.size(), this->known_.fields.size());
  for (size_t i = 0; i < this->made_.fields.size(); ++i) {
    const FieldInfo &a = this->made_.fields[i];
    const FieldInfo &b = this->known_.fields[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type);
    EXPECT_EQ(a.unit, b.unit);
    EXPECT_EQ(a.doc, b.doc);
    EXPECT_EQ(a.range, b.range);
    EXPECT_EQ(a.choices, b.choices);
    EXPECT_EQ(a.defaultValue, b.defaultValue);
  }
}

TYPED_TEST(GpuModel, ReadsAndRefusesParametersAsTheBuiltInOne) {
  const std::vector<Value::Map> cases = {
      {},
      {{"dw_min", 0.004}, {"pulse_noise", "sequential"}, {"construction_seed", 7}},
      {{"noise_merge", "batch"}},
      {{"dw_min", -1.0}},
      {{"dw_mim", 1.0}},
      {{"pulse_noise", "no"}},
      {{"w_max", 0.0}, {"w_min", 0.0}},
      {{"w_max", 1e-20}},
      {{"dw_min", 1e20}},
      {{"dw_min_dtod_log_normal", true}, {"dw_min_dtod", 11.0}},
  };
  for (const Value::Map &map : cases) {
    const Value value{Value::Map(map)};
    Value read;
    Value expected;
    float granularity = 0.0f;
    const std::string told = messageOf([&] {
      const auto params = this->made_.readParams(value, "device");
      read = this->made_.writeParams(*params);
      granularity = this->made_.granularity(*params);
    });
    const std::string wanted = messageOf([&] {
      const auto params = this->known_.readParams(value, "device");
      expected = this->known_.writeParams(*params);
      EXPECT_EQ(granularity, this->known_.granularity(*params));
    });
    EXPECT_EQ(told, wanted);
    EXPECT_EQ(read, expected);
  }
}

TYPED_TEST(GpuModel, LaunchesTheSameWithTheSameArguments) {
  using Params = typename TypeParam::Params;
  using Known = gpu::ModelLaunches<TypeParam, KnownLauncher>;
  const Value value(Value::Map{{"dw_min", 0.004}, {"w_max", 0.5}});
  const auto params = this->made_.readParams(value, "device");
  const auto knownParams = this->known_.readParams(value, "device");
  const PulsedKernels &kernels = *this->made_.cuda();
  std::vector<float> weights(40 * 36);
  std::vector<uint16_t> cells(weights.size());
  std::vector<uint32_t> deferred(weights.size() + 1);
  uint64_t coincidences = 0;
  CellArray array;
  array.rows = 40;
  array.cols = 36;
  array.cells = cells.data();
  array.weights = weights.data();
  array.deferred = deferred.data();
  array.key = {3, 4};
  PulseWords words{};
  // Calls of one kernel by either table; what the arguments hold beside padding.
  const auto same = [&](const std::function<void(const PulsedKernels &, CellArray)> &call,
                        const std::function<void()> &compare) {
    CellArray mine = array;
    mine.params = params.get();
    launched() = {};
    call(kernels, mine);
    const Launched first = launched();
    mine.params = knownParams.get();
    launched() = {};
    call(Known::kTable, mine);
    EXPECT_EQ(first.kernel, launched().kernel);
    EXPECT_EQ(first.blocks, launched().blocks);
    EXPECT_EQ(first.threads, launched().threads);
    EXPECT_EQ(first.cleared, launched().cleared);
    ASSERT_EQ(first.arguments.size(), launched().arguments.size());
    for (size_t i = 0; i < first.arguments.size(); ++i)
      EXPECT_EQ(first.arguments[i].size(), launched().arguments[i].size());
    launched() = first;
    compare();
  };
  const auto sameArray = [&](const gpu::Array<TypeParam> &seen) {
    EXPECT_EQ(seen.rows, 40);
    EXPECT_EQ(seen.cols, 36);
    EXPECT_EQ(seen.cells, cells.data());
    EXPECT_EQ(seen.key.k0, array.key.k0);
    const RoundKeys rounds = roundKeys(array.key);
    EXPECT_EQ(std::memcmp(&seen.rounds, &rounds, sizeof rounds), 0);
    EXPECT_EQ(writeParams(static_cast<const Params &>(seen.params)),
              writeParams(paramsOf<Params>(*knownParams)));
  };
  const auto arrayOf = [&](size_t offset) {
    gpu::Array<TypeParam> seen;
    std::memcpy(static_cast<void *>(&seen), launched().arguments[0].data() + offset, sizeof seen);
    return seen;
  };
  same([&](const PulsedKernels &k,
           const CellArray &a) { k.construct(a, cells.data(), 5, 900, nullptr); },
       [&] {
         sameArray(arrayOf(0));
         int64_t begin = 0;
         std::memcpy(&begin, launched().arguments[2].data(), sizeof begin);
         EXPECT_EQ(begin, 5);
       });
  for (const int count : {1, 2, 4}) {
    same(
        [&](const PulsedKernels &k, const CellArray &a) {
          std::vector<PulsedUpdate> updates(static_cast<size_t>(count), {a, words, &coincidences});
          k.updateTogether(updates.data(), count, nullptr);
        },
        [&] {
          for (int i = 0; i < count; ++i) {
            gpu::ArrayUpdate<TypeParam> seen;
            std::memcpy(static_cast<void *>(&seen),
                        launched().arguments[0].data() + static_cast<size_t>(i) * sizeof seen,
                        sizeof seen);
            sameArray(seen.array);
            EXPECT_EQ(seen.array.weights, weights.data());
            EXPECT_EQ(seen.coincidences, &coincidences);
            EXPECT_EQ(seen.blocks.count(), gpu::Blocks::of(array).count());
          }
        });
  }
}

TEST(GpuModelMerging, ClearsAndLaunchesTwice) {
  const DeviceModel made = gpuModel(&facts<ConstantStep>, recorder(), "");
  const auto params = made.readParams(Value(Value::Map{{"noise_merge", "batch"}}), "device");
  std::vector<uint32_t> deferred(10);
  CellArray array;
  array.rows = array.cols = 3;
  array.deferred = deferred.data();
  array.params = params.get();
  launched() = {};
  uint64_t coincidences = 0;
  made.cuda()->update(array, PulseWords{}, &coincidences, 0, 9, nullptr);
  EXPECT_EQ(launched().kernel, static_cast<int>(gpu::ModelKernel::Deferred));
  EXPECT_EQ(launched().cleared, sizeof(uint32_t));
  const uint32_t *seen = nullptr;
  ASSERT_EQ(launched().arguments.size(), 3u);
  std::memcpy(static_cast<void *>(&seen), launched().arguments[2].data(), sizeof seen);
  EXPECT_EQ(seen, deferred.data());
}

TEST(GpuModelErrors, TheCpuIsRefusedAndDamagedFactsAreFound) {
  const DeviceModel made = gpuModel(&facts<SoftBounds>, recorder(), "there is no compiler here");
  EXPECT_THROW(made.cpu(Isa::V2), CompilerNotFound);
  const std::string told = messageOf([&] { made.cpu(Isa::V2); });
  EXPECT_NE(told.find("'SoftBounds' works on a GPU alone"), std::string::npos) << told;
  EXPECT_NE(told.find("there is no compiler here"), std::string::npos) << told;
  const std::string whole = facts<SoftBounds>({});
  for (const size_t kept : {size_t{0}, size_t{20}, size_t{200}, whole.size() - 1}) {
    const ModelFacts cut = [&](std::string_view) { return whole.substr(0, kept); };
    EXPECT_THROW(gpuModel(cut, recorder(), ""), CompileError) << kept;
  }
  std::string other = whole;
  other[0] = 99;  // another version
  EXPECT_THROW(gpuModel([&](std::string_view) { return other; }, recorder(), ""), CompileError);
}

}  // namespace
}  // namespace pulsora
