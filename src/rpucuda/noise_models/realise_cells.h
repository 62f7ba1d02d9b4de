#pragma once

#include <cstdint>

#include "noise_models/cell_encoding.h"
#include "noise_models/noise_model.h"
#include "numerics/random.h"

// The work of a realisation: targets of devices become the conductances and weights that reads see.
// It needs no host, so that compilers at run time can read it, for noise models from source.

// Before loops over a few devices: arrays that they index stay in the registers of a GPU.
#if PULSORA_DEVICE_CODE
#define PULSORA_UNROLL _Pragma("unroll")
#else
#define PULSORA_UNROLL
#endif

namespace pulsora {

struct ProgrammedPoint;

/// Indices of draws with purpose Program: programming errors and read noise; which devices are
/// stuck, four to a block.
enum ProgramIndex : uint32_t { kErrorIndex = 0, kStuckIndex = 1 };

/// Keys of the random numbers of a realisation.
struct RealisationKeys {
  RandomKey device;   ///< programming errors, and the drift of devices
  RandomKey chip;     ///< which devices are stuck
  RandomKey reading;  ///< what is drawn anew at a time

  /// The keys at a point: those of the reading follow from the bits of the time.
  static RealisationKeys at(RandomKey device, RandomKey chip, const ProgrammedPoint &point);
};

/// One realisation of programmed cells, besides its noise model: which weights, encoded how, with
/// which draws, and where results go.
struct Realisation {
  const float *wanted = nullptr;  ///< weights in [-1, 1] of the cells; null: all 0
  int64_t cells = 0;
  uint64_t firstDevice = 0;  ///< number of the first device; a multiple of 8
  CellEncoding cell;
  RealisationKeys keys{};
  uint64_t number = 0;  ///< of the programming
  float stuckLow = 0.0f;
  float stuckHigh = 0.0f;
  Conductances which = Conductances::Now;
  bool exact = false;               ///< whether programmed conductances are the targets
  const float *measured = nullptr;  ///< programmed conductances [cells, devices of a cell], or null
  /// Shares of the standard deviation of read noise: what belongs to the conductances, and what
  /// each read draws for itself.
  float frozen = 1.0f;
  float fresh = 0.0f;
  float *weights = nullptr;       ///< [cells]; null: not wanted
  float *variance = nullptr;      ///< [cells] of the weights, drawn by each read; null: not wanted
  float *conductances = nullptr;  ///< [cells, devices of a cell], in uS; null: not wanted

  /// Cells whose devices fill whole blocks of eight.
  PULSORA_HD int64_t cellsOfGroup() const {
    int64_t count = 8;
    while (count % 2 == 0 && count / 2 * cell.devices % 8 == 0) count /= 2;
    return count;
  }
  int64_t groups() const { return (cells + cellsOfGroup() - 1) / cellsOfGroup(); }
};

/// Makes the weights and conductances of a group of cells, two devices at a time. A block of random
/// numbers serves eight neighbouring devices.
template <class Model>
struct Realise {
  Realisation r;
  typename Model::Params p;
  typename Model::Time time;

  PULSORA_HD void operator()(int64_t group) const {
    const int64_t cells = r.cellsOfGroup();
    const int devices = r.cell.devices;
    const int64_t blocks = cells * devices / 8;
    const uint64_t firstBlock = r.firstDevice / 8 + static_cast<uint64_t>(group * blocks);
    int64_t cell = group * cells;
    int k = 0;
    float weight = r.cell.constant;
    float variance = 0.0f;
    for (int64_t block = 0; block < blocks; ++block) {
      const Words words = wordsOf(firstBlock + static_cast<uint64_t>(block));
      for (uint32_t pair = 0; pair < 4; ++pair) {
        if (cell >= r.cells) return;
        DeviceReading seen[2];
        two(words, pair, cell, k, seen);
        PULSORA_UNROLL
        for (const DeviceReading &device : seen) {
          if (cell >= r.cells) return;
          if (r.conductances) r.conductances[cell * devices + k] = device.conductance;
          weight = weightWith(k, device.conductance, weight);
          if (r.variance) variance = varianceWith(k, device.sigma, variance);
          if (++k < devices) continue;
          if (r.weights) r.weights[cell] = weight;
          if (r.variance) r.variance[cell] = variance;
          weight = r.cell.constant;
          variance = 0.0f;
          k = 0;
          ++cell;
        }
      }
    }
  }

  /// The target in uS of device k of a cell for a weight.
  PULSORA_HD float targetOf(float w, int k) const {
    return pulsora::fma(r.cell.target(w, k), p.g_max - p.g_min, p.g_min);
  }
  /// The weight of a cell's devices up to device k, of conductance g, where `weight` is that of the
  /// devices before.
  PULSORA_HD float weightWith(int k, float g, float weight) const {
    return pulsora::fma(r.cell.device[k].share, (g - p.g_min) / (p.g_max - p.g_min), weight);
  }
  /// The variance of the weight that each read draws, likewise; `sigma` is that of device k's read.
  PULSORA_HD float varianceWith(int k, float sigma, float variance) const {
    const float spread = r.cell.device[k].share * (r.fresh * sigma / (p.g_max - p.g_min));
    return pulsora::fma(spread, spread, variance);
  }
  /// `device` where a random word does not make it stuck; else its stuck value for each end.
  PULSORA_HD float stuck(uint32_t word, float device, float low, float high) const {
    const float u = uniform(word);
    device = pulsora::select(u < r.stuckLow, low, device);
    return pulsora::select(u >= 1.0f - r.stuckHigh, high, device);
  }
  /// Whether devices may be stuck.
  PULSORA_HD bool sticks() const { return r.stuckLow + r.stuckHigh > 0.0f && !r.measured; }

 private:
  /// Random words of eight devices: each word has the normals of two.
  struct Words {
    Philox4 error;
    Philox4 kept;
    Philox4 anew;
    Philox4 read;
    Philox4 stuck[2];
  };

  PULSORA_HD Words wordsOf(uint64_t block) const {
    Words words{};
    if (r.which == Conductances::Target) return words;
    if (!r.exact) words.error = of(r.keys.device, Purpose::Program, block, kErrorIndex);
    if (r.which != Conductances::Programmed) {
      words.kept = of(r.keys.device, Purpose::Drift, block, kErrorIndex);
      words.anew = of(r.keys.reading, Purpose::Drift, block, kErrorIndex);
      words.read = of(r.keys.reading, Purpose::Program, block, kErrorIndex);
    }
    if (sticks()) {
      words.stuck[0] = draw(r.keys.chip, Purpose::Program, block, 0, kStuckIndex);
      words.stuck[1] = draw(r.keys.chip, Purpose::Program, block, 0, kStuckIndex + 1);
    }
    return words;
  }
  PULSORA_HD Philox4 of(RandomKey key, Purpose purpose, uint64_t block, uint32_t index) const {
    return draw(key, purpose, block, r.number, index);
  }

  /// The programmed conductance of a device of the cells.
  PULSORA_HD float programmed(int64_t device, float target, float xi) const {
    if (r.measured) return device < r.cells * r.cell.devices ? r.measured[device] : target;
    return r.exact ? target : Model::programmed(target, xi, p);
  }

  /// Reads the devices 2 pair and 2 pair + 1 of a block, from device k of a cell on.
  PULSORA_HD void two(const Words &words, uint32_t pair, int64_t cell, int k,
                      DeviceReading *seen) const {
    const bool last = k + 1 == r.cell.devices;
    const float target[2] = {targetOf(wanted(cell), k),
                             targetOf(wanted(cell + (last ? 1 : 0)), last ? 0 : k + 1)};
    const int64_t first = cell * r.cell.devices + k;
    const bool exact = r.exact || r.which == Conductances::Target;
    const auto normals = [pair](const Philox4 &block) { return normalPair16(wordOf(block, pair)); };
    const NormalPair error = exact ? NormalPair{} : normals(words.error);
    if (r.which == Conductances::Now) {
      const NormalPair kept = normals(words.kept);
      const NormalPair anew = normals(words.anew);
      const NormalPair read = normals(words.read);
      seen[0] = reading(first, target[0], {error.z0, {kept.z0, anew.z0}, read.z0});
      seen[1] = reading(first + 1, target[1], {error.z1, {kept.z1, anew.z1}, read.z1});
    } else {
      const bool isTarget = r.which == Conductances::Target;
      seen[0] = {isTarget ? target[0] : programmed(first, target[0], error.z0), 0.0f};
      seen[1] = {isTarget ? target[1] : programmed(first + 1, target[1], error.z1), 0.0f};
    }
    if (!sticks() || r.which == Conductances::Target) return;
    PULSORA_UNROLL
    for (uint32_t l = 0; l < 2; ++l) {
      const uint32_t at = 2 * (pair & 1U) + l;
      const uint32_t low = wordOf(words.stuck[0], at);
      const uint32_t word = pair < 2 ? low : wordOf(words.stuck[1], at);
      seen[l].conductance = stuck(word, seen[l].conductance, p.g_min, p.g_max);
      seen[l].sigma = stuck(word, seen[l].sigma, 0.0f, 0.0f);
    }
  }

  PULSORA_HD DeviceReading reading(int64_t device, float target, const DeviceDraws &draws) const {
    const float start = programmed(device, target, draws.program);
    return readingOf<Model>(target, start, draws, time, p, r.frozen);
  }
  PULSORA_HD float wanted(int64_t cell) const {
    return r.wanted && cell < r.cells ? r.wanted[cell] : 0.0f;
  }
};

/// The loops of a realisation of a model that was compiled at run time. Parameters are of the
/// model's own type.
struct NoiseKernels {
  /// Makes the groups [begin, end) on the CPU.
  void (*onCpu)(const Realisation &, const NoiseParams &, double time, int64_t begin, int64_t end);
  /// Makes the groups [0, groups) on the current GPU.
  void (*onGpu)(const Realisation &, const NoiseParams &, double time, int64_t groups,
                void *stream);
};

}  // namespace pulsora
