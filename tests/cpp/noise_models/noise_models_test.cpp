#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "noise_model_list.h"
#include "noise_models/noise_model_params.h"
#include "noise_models/realise.h"
#include "util/message_test_util.h"

// Moments of the noise models against closed forms, for N draws of each device.

namespace pulsora {
namespace {

constexpr int64_t kDraws = 400000;

struct Moments {
  double mean = 0.0;
  double sd = 0.0;
};

Moments momentsOf(const std::vector<float> &values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const float v : values) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const double n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * (sum / n))};
}

/// Conductances of kDraws devices of target g (relative to the range), one device per cell.
std::vector<float> conductancesOf(const NoiseModelParams &model, float g, double time,
                                  Conductances which = Conductances::Now) {
  const std::vector<float> wanted(kDraws, 2.0f * g - 1.0f);
  std::vector<float> out(kDraws);
  Realisation r;
  r.wanted = wanted.data();
  r.cells = kDraws;
  r.cell = cellEncoding(CellKind::Single, listOf(1.0f), 0);
  r.keys = RealisationKeys::at(makeKey(1, 2, 3), makeKey(1, 2, 4), {0, time, 0});
  r.which = which;
  r.conductances = out.data();
  realise({}, model, time, r);
  return out;
}

/// Mean and standard deviation within five standard errors; the errors of normals and of what is
/// narrower.
void expectMoments(const std::vector<float> &values, double mean, double sd) {
  const Moments found = momentsOf(values);
  const double n = static_cast<double>(kDraws);
  EXPECT_NEAR(found.mean, mean, 5.0 * sd / std::sqrt(n) + 2e-6 * mean);
  EXPECT_NEAR(found.sd, sd, 5.0 * sd / std::sqrt(2.0 * n) + 1e-6 * mean);
}

TEST(NoiseModels, Property60_MomentsOfAPowerLawAreThoseOfItsTables) {
  PowerLaw::Params p;
  p.g_max = 30.0f;
  p.g = listOf(0.0f, 0.5f, 1.0f);
  p.sigma = listOf(0.2f, 0.8f, 0.4f);
  p.nu_mean = listOf(0.1f, 0.06f, 0.04f);
  p.nu_std = listOf(0.0f, 0.0f, 0.0f);
  p.read_noise = listOf(0.03f, 0.02f, 0.01f);
  // At 3/4 of the range: sigma 0.6, nu 0.05, Q 0.015.
  expectMoments(conductancesOf(p, 0.75f, 0.0, Conductances::Programmed), 22.5, 0.6);

  PowerLaw::Params exact = p;
  exact.prog_noise_scale = 0.0f;
  const double t = 86400.0;
  const double left = std::pow((t + 20.0) / 20.0, -0.05);
  const double growth = std::sqrt(std::log((t + 20.0 + 250e-9) / 500e-9));
  expectMoments(conductancesOf(exact, 0.75f, t), 22.5 * left, 22.5 * left * 0.015 * growth);

  // The exponent alone: ln(G / G_T) = -nu ln(T / t_0).
  PowerLaw::Params spread = exact;
  spread.read_noise_scale = 0.0f;
  spread.nu_std = listOf(0.01f, 0.01f, 0.01f);
  std::vector<float> nu = conductancesOf(spread, 0.75f, t);
  for (float &value : nu)
    value = static_cast<float>(-std::log(static_cast<double>(value) / 22.5) /
                               std::log((t + 20.0) / 20.0));
  expectMoments(nu, 0.05, 0.01);
}

TEST(NoiseModels, Property60_MomentsOfAShiftAreThoseOfItsTablesForAnyPersistence) {
  Shift::Params p;
  p.g_max = 100.0f;
  p.times = listOf(1.0f, 100.0f);
  p.g = listOf(0.0f, 1.0f);
  p.shift = listOf(0.0f, 0.0f, -2.0f, -4.0f);
  p.sigma = listOf(1.0f, 1.0f, 3.0f, 3.0f);
  for (const float persistence : {0.0f, 0.5f, 1.0f}) {
    p.persistence = persistence;
    expectMoments(conductancesOf(p, 0.5f, 0.0), 50.0, 1.0);
    expectMoments(conductancesOf(p, 0.5f, 100.0), 47.0, 3.0);
    expectMoments(conductancesOf(p, 0.5f, 10.0), 48.5, 2.0);  // half way in ln t
  }
  // With full memory the error of programming is part of the later deviation: covariance 1.
  const std::vector<float> first = conductancesOf(p, 0.5f, 0.0);
  const std::vector<float> later = conductancesOf(p, 0.5f, 100.0);
  double covariance = 0.0;
  for (size_t i = 0; i < first.size(); ++i)
    covariance += (static_cast<double>(first[i]) - 50.0) * (static_cast<double>(later[i]) - 47.0);
  EXPECT_NEAR(covariance / double(kDraws), 1.0, 5.0 * std::sqrt(10.0 / double(kDraws)));
}

TEST(NoiseModels, Property60_MomentsOfAnExponentialAreThoseOfItsTables) {
  Exponential::Params p;
  p.g_max = 20.0f;
  p.rest = 4.0f;
  p.g = listOf(0.0f, 0.5f, 1.0f);
  p.sigma = listOf(0.2f, 0.8f, 0.4f);
  p.tau = listOf(100.0f, 2000.0f, 1000.0f);
  p.tau_std = listOf(0.0f, 0.0f, 0.0f);
  p.read_noise = listOf(0.03f, 0.02f, 0.01f);
  // At 3/4 of the range: sigma 0.6, tau 1500, read noise 0.015.
  expectMoments(conductancesOf(p, 0.75f, 0.0, Conductances::Programmed), 15.0, 0.6);

  Exponential::Params exact = p;
  exact.prog_noise_scale = 0.0f;
  const double left = 4.0 + 11.0 * std::exp(-0.5);
  expectMoments(conductancesOf(exact, 0.75f, 750.0), left, 0.015 * left);
  // At rest in the end.
  exact.read_noise_scale = 0.0f;
  expectMoments(conductancesOf(exact, 0.75f, 1e8), 4.0, 0.0);

  // The time constants alone: ln of t / -ln((G - rest) / (G_T - rest)).
  exact.tau_std = listOf(0.3f, 0.3f, 0.3f);
  std::vector<float> tau = conductancesOf(exact, 0.75f, 750.0);
  for (float &value : tau)
    value =
        static_cast<float>(std::log(750.0 / -std::log((static_cast<double>(value) - 4.0) / 11.0)));
  expectMoments(tau, std::log(1500.0), 0.3);
}

TEST(NoiseModels, Property60_WithoutNoiseAndDriftDevicesKeepTheirTargets) {
  for (const NoiseModel &model : noiseModels()) {
    Value value(Value::Map{{"model", model.name},
                           {"prog_noise_scale", 0.0},
                           {"read_noise_scale", 0.0},
                           {"drift_scale", 0.0}});
    NoiseModelParams params = NoiseModelParams::read(value, "noise_model");
    const double range = double(params.common().g_max) - double(params.common().g_min);
    for (const float g : {0.0f, 0.3f, 1.0f}) {
      const float target =
          static_cast<float>(double(params.common().g_min) + static_cast<double>(g) * range);
      for (const float value_ : conductancesOf(params, g, 1.0))
        ASSERT_NEAR(value_, target, 2e-6f * params.common().g_max) << model.name << " " << g;
    }
  }
}

TEST(NoiseModels, BadParametersAreNamed) {
  const auto expect = [](Value::Map map, const std::string &part) {
    const std::string said = messageOf([&] { NoiseModelParams::read(Value(map), "noise_model"); });
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect({{"model", "PCMLike"}, {"g_min", 30.0}}, "g_min is 30");
  expect({{"model", "PCMLike"}, {"prog_coeff", Value::List{0.1, -1.0}}},
         "prog_coeff gives the standard deviation");
  expect({{"model", "ReRamCMO"}, {"acceptance_range", 0.5}}, "acceptance_range is 0.5");
  expect({{"model", "PowerLaw"}, {"sigma", Value::List{0.1, 0.1, 0.1}}}, "sigma has 3 entries");
  expect({{"model", "Shift"}, {"g", Value::List{0.5, 0.5}}}, "nodes must ascend");
  expect({{"model", "PCM"}}, "which is not a noise model");
}

}  // namespace
}  // namespace pulsora
