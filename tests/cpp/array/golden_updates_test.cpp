#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>

#include "util/fnv_hash.h"
#include "util/pulse_test_util.h"

// The bits of pulse trains and of weights after 50 updates, for every device model and pulse type:
// the same on every compiler, build type, instruction set and number of threads. They change only
// with a decision to change the physics or the contract of random numbers. Then:
//   PULSORA_WRITE_GOLDEN=1 rpucuda_tests --gtest_filter='GoldenUpdates.*'

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey = {0x60DU, 0xE11U};

std::string hex(uint64_t value) {
  std::ostringstream text;
  text << std::hex << value;
  return text.str();
}

UpdateParameters parametersOf(size_t type) {
  UpdateParameters p;
  p.pulse_type = static_cast<PulseType>(type);
  p.x_res_implicit = 0.05f;
  return p;
}

std::string weightsHash(const Context &context, const DeviceModel &model, size_t type) {
  PulsedDevice device(context, makeParams(model.name), 7, 9, kKey);
  PulsedWeightUpdater updater(parametersOf(type), {kKey.k1, kKey.k0});
  FnvHash hash;
  uint64_t sample = 0;
  for (uint64_t step = 0; step < 50; ++step) {
    const Batch b = randomBatch(3, 9, 7, step);
    updater.update(context, device, b.xView(), b.dView(), 0.3f, sample);
    device.relax(context, step);
    sample += 3;
    for (const float w : storedWeights(device)) hash.add(w);
  }
  return hex(hash.value());
}

std::string wordsHash(const Context &context, int desiredBl, bool twoPass) {
  UpdateParameters p;
  p.desired_bl = desiredBl;
  p.res = 0.01f;
  p.sto_round = true;
  p.pulse_type = twoPass ? PulseType::Stochastic : PulseType::StochasticCompressed;
  BitLineMaker maker;
  FnvHash hash;
  for (uint64_t step = 0; step < 10; ++step) {
    const Batch b = randomBatch(6, 9, 7, step);
    maker.makeWords(context, b.xView(), b.dView(), 0.3f, 0.001f, p, kKey, 6 * step);
    const PulseWords &words = maker.words();
    const auto add = [&](const uint32_t *plane, int64_t lines) {
      for (int64_t at = 0; plane && at < words.layout->words(6) * lines; ++at) hash.add(plane[at]);
    };
    add(words.xBits, 9);
    add(words.xSigns, 9);
    add(words.dBits, 7);
    add(words.dSigns, 7);
    add(words.dBitsNegativeX, 7);
  }
  return hex(hash.value());
}

/// Hashes of pulse trains, and of the weights of every model of this tree.
std::map<std::string, std::string> hashes(const Context &context) {
  std::map<std::string, std::string> all;
  for (const int bl : {1, 7, 31, 64}) {
    for (const bool twoPass : {false, true}) {
      all[message("words/", twoPass ? "two_pass/" : "one_pass/", bl)] =
          wordsHash(context, bl, twoPass);
    }
  }
  for (const DeviceModel &model : deviceModels()) {
    if (isFromOutside(model.name)) continue;  // golden values are kept for models of this tree
    for (size_t type = 0; type < std::size(EnumNames<PulseType>::kNames); ++type) {
      all[message("weights/", model.name, '/', EnumNames<PulseType>::kNames[type])] =
          weightsHash(context, model, type);
    }
  }
  return all;
}

TEST(GoldenUpdates, AreTheSameEverywhere) {
  const std::string path = std::string(PULSORA_GOLDEN_DIR) + "/update_hashes.txt";
  std::map<std::string, std::string> golden;
  std::ifstream file(path);
  for (std::string name, hash; file >> name >> hash;) golden[name] = hash;
  if (std::getenv("PULSORA_WRITE_GOLDEN")) {
    for (const auto &[name, hash] : hashes(onCpu(1))) golden[name] = hash;
    std::ofstream out(path);
    for (const auto &[name, hash] : golden) out << name << ' ' << hash << '\n';
    ASSERT_TRUE(out.flush()) << "cannot write " << path;
    return;
  }
  for (const Isa isa : supportedIsas()) {
    for (const int threads : {1, 2}) {
      for (const auto &[name, hash] : hashes(onCpu(threads, isa))) {
        ASSERT_TRUE(golden.count(name)) << path << " has no value for " << name
                                        << "; see how to write it at the top of this test";
        EXPECT_EQ(golden[name], hash)
            << name << " on " << isaName(isa) << " with " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace pulsora::testing
