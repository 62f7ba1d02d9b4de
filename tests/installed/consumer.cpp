// What a user's program may rely on: nothing of Pulsora's own paths leaks, a model of the user's
// own is registered and learns, and versions agree. Exit status 0 if so.

#include <cmath>
#include <core/check.h>
#include <cstdio>
#include <cstdlib>
#include <pulsora/bit_line_maker.h>
#include <pulsora/check.h>
#include <pulsora/device_model.h>
#include <pulsora/single.h>
#include <pulsora/tile.h>
#include <pulsora/version.h>
#include <string>
#include <vector>

#include "doubled_step.h"

#if __has_include("core/isa.h") || __has_include("tile/tile.h") || __has_include("device_list.h")
#error "Pulsora's own include path has reached a user"
#endif
static_assert(kOwnCheck == 42, "the user's own core/check.h");
#ifndef PULSORA_CHECK
#error "<pulsora/check.h> is not Pulsora's"
#endif
#ifdef __FMA__
#error "Pulsora's flags for instruction sets have reached a user"
#endif

namespace {

void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

template <class Action>
std::string refusal(const Action &action) {
  try {
    action();
  } catch (const pulsora::ConfigError &error) {
    return error.what();
  }
  return "";
}

/// Mean weight of a tile without spread after ten pulses up on every cell.
template <class Params>
float afterTenPulses() {
  Params p;
  p.dw_min_std = p.dw_min_dtod = p.up_down_dtod = p.w_max_dtod = p.w_min_dtod = 0.0f;
  pulsora::SingleParams array;
  array.device = p;
  pulsora::TileConfig config;
  config.compound = array;
  config.update.desired_bl = 10;
  config.update.update_management = config.update.update_bl_management = false;
  pulsora::Tile tile(2, 3, config, 1);
  const std::vector<float> x(3, 1.0f), d(2, -1.0f);
  std::vector<float> w(6);
  tile.update(pulsora::rowMajor(x.data(), 1, 3), pulsora::rowMajor(d.data(), 1, 2), 1.0f);
  tile.getWeights(pulsora::rowMajor(w.data(), 2, 3));
  float sum = 0.0f;
  for (const float weight : w) sum += weight;
  return sum / 6.0f;
}

}  // namespace

int main() {
  using pulsora::DoubledStep;
  require(std::string(PULSORA_VERSION) == std::to_string(PULSORA_VERSION_MAJOR) + "." +
                                              std::to_string(PULSORA_VERSION_MINOR) + "." +
                                              std::to_string(PULSORA_VERSION_PATCH),
          "the version and its parts agree");

  const pulsora::DeviceModel &model = pulsora::deviceModel("DoubledStep", "device");
  require(&model == &pulsora::deviceModels().back(), "pulsora_add_device() registers the model");
  require(!model.cuda(), "it has kernels for the CPU alone");
  require(refusal([] {
            pulsora::registerDevice(pulsora::makeDeviceModel<DoubledStep>());
          }).find("'DoubledStep' already") != std::string::npos,
          "a name is registered once");
  const pulsora::DeviceParams device = DoubledStep::Params{};
  require(&pulsora::DeviceParams::read(device.write(), "device").model() == &model,
          "a configuration finds the model by its name");

  const float once = afterTenPulses<pulsora::ConstantStep::Params>();
  const float twice = afterTenPulses<DoubledStep::Params>();
  require(std::fabs(once - 0.01f) < 1e-6f, "ten pulses of 0.001");
  require(std::fabs(twice - 2.0f * once) < 1e-6f, "the model's own step is taken");

  // Another model registered at run time leaves the first where it is.
  pulsora::DeviceModel renamed = pulsora::makeDeviceModel<DoubledStep>();
  renamed.name = "AnotherStep";
  pulsora::registerDevice(std::move(renamed));
  require(&pulsora::deviceModel("DoubledStep", "") == &model, "models stay where they are");
  require(pulsora::deviceModels().back().name == "AnotherStep", "models are listed in order");
  std::puts("a user's program may rely on it");
  return 0;
}
