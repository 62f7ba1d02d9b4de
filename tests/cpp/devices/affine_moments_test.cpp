#include "devices/affine_moments.h"

#include <gtest/gtest.h>
#include <vector>

#include "devices/batch_noise.h"
#include "devices/linear_step.h"
#include "devices/soft_bounds.h"
#include "devices/soft_bounds_reference.h"
#include "util/device_test_util.h"

// Moments of a weight: the short form for single pulses beside that for counts.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

const RandomKey kKey = makeKey(7, 3, 1);

std::vector<float> membersOf(AffineMoments moments) {
  std::vector<float> all;
  moments.members([&](float &value) { all.push_back(value); });
  return all;
}

template <class Device>
void checkSinglePulses(const DeviceParams &params) {
  const auto &p = params.as<typename Device::Params>();
  withKindOfNoise(p, [&](auto kind) {
    constexpr bool kMultiplicative = decltype(kind)::value;
    for (uint64_t cell = 0; cell < 1000; ++cell) {
      CellDraws draws(kKey, cell);
      const auto r = Device::response(Device::construct(p, draws, false), p);
      const AffineMaps maps = Device::affineMaps(r, p);
      const OnePulseMap up = OnePulseMap::of<kMultiplicative>(maps.up, p.dw_min_std);
      const OnePulseMap down = OnePulseMap::of<kMultiplicative>(maps.down, p.dw_min_std);
      AffineMoments counted = AffineMoments::of(0.1f * r.w_max);
      AffineMoments single = counted;
      const uint32_t bits = draw(kKey, Purpose::UserDraw, cell, 11).v[0];
      const int pulses = static_cast<int>(cell % 32);
      for (int k = 0; k < pulses; ++k) {
        const bool isUp = bits >> k & 1U;
        counted.template add<kMultiplicative>(1.0f, isUp, maps, p.dw_min_std);
        single.template addOne<kMultiplicative>(isUp, up, down);
      }
      const uint32_t ups = popcount(bits & ((1U << pulses) - 1U));
      single.countOnes(static_cast<float>(pulses), static_cast<float>(ups));
      ASSERT_TRUE(sameBits(membersOf(single), membersOf(counted))) << "cell " << cell;
    }
  });
}

TEST(AffineMoments, SinglePulsesHaveTheBitsOfCountsOfOne) {
  for (const bool multiplicative : {true, false}) {
    SCOPED_TRACE(multiplicative ? "multiplicative noise" : "additive noise");
    const Value noise(multiplicative);
    checkSinglePulses<LinearStep>(
        makeParams("LinearStep",
                   {{"mult_noise", noise}, {"gamma_up", Value(0.3)}, {"gamma_down", Value(0.5)}}));
    checkSinglePulses<SoftBounds>(makeParams("SoftBounds", {{"mult_noise", noise}}));
    checkSinglePulses<SoftBoundsReference>(
        makeParams("SoftBoundsReference", {{"mult_noise", noise}, {"reference_std", Value(0.05)}}));
  }
}

}  // namespace
}  // namespace pulsora
