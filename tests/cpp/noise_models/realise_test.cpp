#include "noise_models/realise.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "core/type_list.h"
#include "noise_model_list.h"
#include "noise_models/pcm_like.h"
#include "util/matrix_test_util.h"

// A realisation is a function of weights, keys and point: not of threads, instruction sets, or of
// which cells are made together.

namespace pulsora {
namespace {

struct Made {
  std::vector<float> weights, conductances;
};

std::vector<float> someWeights(int64_t cells) {
  std::vector<float> w;
  for (int64_t i = 0; i < cells; ++i) w.push_back(static_cast<float>(i * 37 % 201 - 100) / 100.0f);
  return w;
}

constexpr int kKinds = 5;

CellEncoding someCell(int kind) {
  switch (kind) {
    case 0:
      return cellEncoding(CellKind::Pair, listOf(1.0f), 0);
    case 1:
      return cellEncoding(CellKind::Single, listOf(1.0f), 0);
    case 2:
      return cellEncoding(CellKind::TwoSidedPair, listOf(1.0f), 4);
    case 3:
      return cellEncoding(CellKind::TwoSidedPair, listOf(1.0f), 0);
    default:
      return cellEncoding(CellKind::Pairs, listOf(1.0f, 2.0f, 4.0f), 0);
  }
}

Made made(const Context &context, const NoiseModelParams &model, int kind,
          const std::vector<float> &wanted, uint64_t firstDevice, double time) {
  const CellEncoding cell = someCell(kind);
  Made out{std::vector<float>(wanted.size()),
           std::vector<float>(wanted.size() * static_cast<size_t>(cell.devices))};
  Realisation r;
  r.wanted = wanted.data();
  r.cells = static_cast<int64_t>(wanted.size());
  r.firstDevice = firstDevice;
  r.cell = cell;
  r.number = 5;
  r.keys = RealisationKeys::at(makeKey(1, 2, 3), makeKey(1, 2, 4), {5, time, 0});
  r.stuckLow = 0.05f;
  r.stuckHigh = 0.02f;
  r.weights = out.weights.data();
  r.conductances = out.conductances.data();
  realise(context, model, time, r);
  return out;
}

TEST(Realisations, Property61_DoNotDependOnThreadsOrNeighbours) {
  // Whole groups of any encoding have a multiple of 8 cells. A thread takes 1024 groups or more, of
  // 8 devices each.
  constexpr int64_t kCells = 20003;
  constexpr int64_t kLater = 3000 / 8 * 8;
  const std::vector<float> wanted = someWeights(kCells);
  const std::vector<float> later(wanted.begin() + kLater, wanted.end());
  for (const NoiseModel &each : noiseModels()) {
    const NoiseModelParams model =
        NoiseModelParams::read(Value(Value::Map{{"model", each.name}}), "noise_model");
    for (int kind = 0; kind < kKinds; ++kind) {
      Context many;
      many.cpu.threads = 7;
      const Made one = made({}, model, kind, wanted, 0, 1.0);
      const Made same = made(many, model, kind, wanted, 0, 1.0);
      ASSERT_TRUE(testing::sameBits(one.weights, same.weights)) << each.name << " " << kind;
      ASSERT_TRUE(testing::sameBits(one.conductances, same.conductances));
      const auto devices = static_cast<int64_t>(one.conductances.size()) / kCells;
      const Made part = made({}, model, kind, later, uint64_t(kLater * devices), 1.0);
      for (size_t i = 0; i < later.size(); ++i)
        ASSERT_EQ(part.weights[i], one.weights[static_cast<size_t>(kLater) + i]) << each.name;
    }
  }
}

// What a realisation gives, and what it is made of besides the cells.
struct Outcome {
  std::vector<float> weights, variance, conductances;
};
struct Setting {
  Conductances which = Conductances::Now;
  double time = 3600.0;
  bool exact = false, measured = false, stuck = false, windowed = false;
};

constexpr Setting kSettings[] = {
    {},
    {Conductances::Now, 0.0},
    {Conductances::Now, 3600.0, false, false, true, true},
    {Conductances::Now, 3600.0, true, false, true, false},
    {Conductances::Now, 3600.0, false, true, true, true},
    {Conductances::Programmed, 3600.0, false, false, true, false},
    {Conductances::Target},
};

template <class Make>
Outcome outcomeOf(const Setting &setting, int kind, const std::vector<float> &wanted,
                  const Make &make) {
  Realisation r;
  r.cell = someCell(kind);
  const auto devices = static_cast<size_t>(r.cell.devices);
  const size_t cells = wanted.size();
  Outcome out{std::vector<float>(cells), std::vector<float>(cells),
              std::vector<float>(cells * devices)};
  std::vector<float> measured;
  for (size_t i = 0; i < cells * devices; ++i) measured.push_back(float(i * 29 % 97) / 4.0f);
  r.wanted = wanted.data();
  r.cells = static_cast<int64_t>(cells);
  r.firstDevice = 8 * 12345;
  r.number = (uint64_t{3} << 32) + 5;
  r.keys = RealisationKeys::at(makeKey(1, 2, 3), makeKey(1, 2, 4), {5, setting.time, 0});
  r.which = setting.which;
  r.exact = setting.exact;
  if (setting.measured) r.measured = measured.data();
  if (setting.stuck) r.stuckLow = 0.1f;
  if (setting.stuck) r.stuckHigh = 0.05f;
  if (setting.windowed) r.frozen = 0.75f;
  if (setting.windowed) r.fresh = 0.66f;
  r.weights = out.weights.data();
  r.variance = out.variance.data();
  r.conductances = out.conductances.data();
  make(r);
  return out;
}

// Parameters other than the defaults, for which the loops of tables and polynomials are longer.
template <class Params>
Params longer(Params p) {
  if constexpr (std::is_base_of_v<PcmParams, Params>)
    p.prog_coeff = listOf(0.3f, 1.0f, 0.5f, -1.0f);
  if constexpr (std::is_same_v<Params, StateIndependent::Params>) p.prog_coeff = listOf(0.3f, 1.0f);
  if constexpr (std::is_same_v<Params, Hermes::Params>) p.num_devices = 1;
  if constexpr (std::is_same_v<Params, PowerLaw::Params>) {
    p.g = listOf(0.0f, 0.3f, 1.0f);
    p.sigma = listOf(0.1f, 0.5f, 0.4f);
    p.nu_mean = listOf(0.1f, 0.06f, 0.05f);
    p.nu_std = listOf(0.04f, 0.02f, 0.01f);
    p.read_noise = listOf(0.2f, 0.05f, 0.01f);
  }
  if constexpr (std::is_base_of_v<ShiftParams, Params>) p.persistence = 0.6f;
  return p;
}

template <class Model>
void expectTheBitsOfSingleGroups(const typename Model::Params &params) {
  // Seven groups of lanes and a part of one, of a pair; the last cell is alone in its group.
  const std::vector<float> wanted = someWeights(64 * 7 + 29);
  for (const Setting &setting : kSettings) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const Outcome single = outcomeOf(setting, kind, wanted, [&](const Realisation &r) {
        const Realise<Model> groups{r, params, Model::timeOf(setting.time, params)};
        for (int64_t group = 0; group < r.groups(); ++group) groups(group);
      });
      for (const Isa isa : supportedIsas()) {
        Context context;
        context.cpu.isa = isa;
        const Outcome together = outcomeOf(setting, kind, wanted, [&](const Realisation &r) {
          realise(context, NoiseModelParams(params), setting.time, r);
        });
        const auto where = message(Model::kName, " ", kind, " ", isaName(isa), " ", setting.time);
        ASSERT_TRUE(testing::sameBits(single.weights, together.weights)) << where;
        ASSERT_TRUE(testing::sameBits(single.variance, together.variance)) << where;
        ASSERT_TRUE(testing::sameBits(single.conductances, together.conductances)) << where;
      }
    }
  }
}

template <class... Models>
void expectTheBitsOfSingleGroups(TypeList<Models...>) {
  (expectTheBitsOfSingleGroups<Models>(typename Models::Params{}), ...);
  (expectTheBitsOfSingleGroups<Models>(longer(typename Models::Params{})), ...);
}

// Pairs have code of their own where no conductances are wanted, and for several readings.
template <class Model>
void expectTheBitsOfDevices(const typename Model::Params &params) {
  const std::vector<float> wanted = someWeights(61);
  for (const Setting &setting : kSettings) {
    if (setting.which != Conductances::Now) continue;
    for (const int kind : {0, 2, 3}) {
      const Outcome apart = outcomeOf(setting, kind, wanted, [&](const Realisation &r) {
        const Realise<Model> groups{r, params, Model::timeOf(setting.time, params)};
        for (int64_t group = 0; group < r.groups(); ++group) groups.makeDevices(group);
      });
      const auto where = message(Model::kName, " ", kind, " ", setting.time);
      const auto expectSame = [&](const Outcome &made) {
        ASSERT_TRUE(testing::sameBits(apart.weights, made.weights)) << where;
        ASSERT_TRUE(testing::sameBits(apart.variance, made.variance)) << where;
      };
      expectSame(outcomeOf(setting, kind, wanted, [&](Realisation r) {
        r.conductances = nullptr;
        ASSERT_TRUE(r.isOfPairs());
        const Realise<Model> pairs{r, params, Model::timeOf(setting.time, params)};
        for (int64_t group = 0; group < r.groups(); ++group) pairs(group);
      }));
      expectSame(outcomeOf(setting, kind, wanted, [&](Realisation r) {
        r.conductances = nullptr;
        const Realise<Model> last{r, params, Model::timeOf(setting.time, params)};
        Realise<Model> first = last;  // another reading, which must not show in the last one
        first.r.keys.reading = makeKey(9, 9, 9);
        first.time = Model::timeOf(1.0, params);
        const RealiseReadings<Model> both{first, 2, {first.reading(), last.reading()}};
        for (int64_t group = 0; group < r.groups(); ++group) both(group);
      }));
    }
  }
}

template <class... Models>
void expectTheBitsOfDevices(TypeList<Models...>) {
  (expectTheBitsOfDevices<Models>(typename Models::Params{}), ...);
  (expectTheBitsOfDevices<Models>(longer(typename Models::Params{})), ...);
}

TEST(Realisations, Property61_PairsHaveTheBitsOfSingleDevices) {
  expectTheBitsOfDevices(AllNoiseModels{});
}

// Models of a law that change one of its functions.
struct StopsDrifting : PowerLawOf<StopsDrifting> {
  static constexpr const char *kName = "StopsDrifting";
  using Params = PCMLike::Params;

  PULSORA_HD static float programSigma(float target, const Params &p) {
    return PCMLike::programSigma(target, p);
  }
  PULSORA_HD static float nuMean(float, const Params &) { return 0.05f; }
  PULSORA_HD static float nuStd(float, const Params &) { return 0.01f; }
  PULSORA_HD static float readNoise(float, const Params &) { return 0.1f; }
  PULSORA_HD static float drifted(float target, float programmed, const DriftDraws &xi,
                                  const Time &time, const Params &p) {
    const float g = PowerLawOf<StopsDrifting>::drifted(target, programmed, xi, time, p);
    return pulsora::max(g, 0.9f * programmed);
  }
};
struct ReadsLoudly : PCMLike {
  static constexpr const char *kName = "ReadsLoudly";

  PULSORA_HD static float readSigma(float drifted, float programmed, const Time &time,
                                    const Params &p) {
    return 3.0f * PCMLike::readSigma(drifted, programmed, time, p);
  }
};

TEST(Realisations, Property61_PairsOfAModelThatChangesALawHaveItsBits) {
  expectTheBitsOfDevices<StopsDrifting>(PCMLike::Params{});
  expectTheBitsOfDevices<ReadsLoudly>(PCMLike::Params{});
}

TEST(Realisations, Property61_LanesHaveTheBitsOfSingleGroups) {
  expectTheBitsOfSingleGroups(AllNoiseModels{});
}

TEST(Realisations, Property61_WeightsAreThoseOfTheirConductances) {
  const NoiseModelParams model = PCMLike::Params{};
  const std::vector<float> wanted = someWeights(301);
  for (int kind = 0; kind < kKinds; ++kind) {
    const CellEncoding cell = someCell(kind);
    const Made out = made({}, model, kind, wanted, 0, 3600.0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      double w = static_cast<double>(cell.constant);
      for (int k = 0; k < cell.devices; ++k) {
        const size_t at = i * static_cast<size_t>(cell.devices) + static_cast<size_t>(k);
        w += static_cast<double>(cell.device[k].share) * double(out.conductances[at]) / 25.0;
      }
      ASSERT_NEAR(out.weights[i], w, 1e-6) << kind;
    }
  }
}

TEST(CellEncodings, TargetsDecodeToTheirWeight) {
  for (int kind = 0; kind < kKinds; ++kind) {
    const CellEncoding cell = someCell(kind);
    for (const float w : someWeights(201)) {
      float g[CellEncoding::kMostDevices] = {};
      for (int k = 0; k < cell.devices; ++k) {
        g[k] = cell.target(w, k);
        EXPECT_GE(g[k], 0.0f);
        EXPECT_LE(g[k], 1.0f);
      }
      // With 4 bits the two halves are rounded by half a step of 1/15 at most.
      const float tolerance = cell.levels > 0.0f ? 1.0f / cell.levels : 3e-7f;
      EXPECT_NEAR(cell.weight(g), w, tolerance) << kind;
    }
  }
}

TEST(Realisations, StuckDevicesHaveTheirShares) {
  // N = 40000 cells of two devices; 5 sigma of a binomial share.
  const std::vector<float> wanted(40000, 0.5f);
  PCMLike::Params exact;
  exact.prog_noise_scale = exact.read_noise_scale = exact.drift_scale = 0.0f;
  const Made out = made({}, exact, 2, wanted, 0, 1.0);
  double low = 0.0;
  double high = 0.0;
  for (const float g : out.conductances) {
    low += g == 0.0f ? 1.0 : 0.0;
    high += g == 25.0f ? 1.0 : 0.0;
  }
  const double n = static_cast<double>(out.conductances.size());
  EXPECT_NEAR(low / n, 0.05, 5.0 * std::sqrt(0.05 * 0.95 / n));
  EXPECT_NEAR(high / n, 0.02, 5.0 * std::sqrt(0.02 * 0.98 / n));
}

}  // namespace
}  // namespace pulsora
