#pragma once

#include <cstdint>

#include "noise_models/cell_encoding.h"
#include "noise_models/noise_model.h"
#include "noise_models/realise_pairs.h"
#include "noise_models/usual_lengths.h"
#include "numerics/random.h"

// The work of a realisation: targets of devices become the conductances and weights that reads see.
// It needs no host, so that compilers at run time can read it, for noise models from source.

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
  /// Whether the weights of cells of two devices are wanted, for which there is faster code.
  PULSORA_HD bool isOfPairs() const {
    return cell.devices == 2 && which == Conductances::Now && !conductances;
  }
  int64_t groups() const { return (cells + cellsOfGroup() - 1) / cellsOfGroup(); }
};

/// Makes the weights and conductances of a group of cells, eight devices at a time: a block of
/// random numbers serves eight neighbouring devices.
template <class Model>
struct Realise {
  Realisation r;
  typename Model::Params p;
  typename Model::Time time;

  PULSORA_HD void operator()(int64_t group) const {
    if (!r.isOfPairs()) return makeDevices(group);
    const bool drifts = driftsAt<Model>(time);
    if (lengthsAreUsual(p)) {
      PairsOfBlock<Realise, Model, true>(*this, group, drifts).read(reading());
    } else {
      PairsOfBlock<Realise, Model, false>(*this, group, drifts).read(reading());
    }
  }

  /// The reading of this realisation.
  PULSORA_HD CellReading<Model> reading() const {
    return {r.keys.reading, time, r.frozen, r.fresh, r.weights, r.variance};
  }
  /// Makes a group of any encoding, a device after the other.
  PULSORA_HD void makeDevices(int64_t group) const {
    const int64_t cells = r.cellsOfGroup();
    const int devices = r.cell.devices;
    const int64_t blocks = cells * devices / 8;
    const uint64_t firstBlock = r.firstDevice / 8 + static_cast<uint64_t>(group * blocks);
    int64_t cell = group * cells;
    int k = 0;
    float weight = r.cell.constant;
    float variance = 0.0f;
    for (int64_t block = 0; block < blocks && cell < r.cells; ++block) {
      float target[8];
      targets(cell, k, target);
      float g[8];
      float sigma[8] = {};
      eight(firstBlock + static_cast<uint64_t>(block), cell * devices + k, target, g, sigma);
      for (int l = 0; l < 8; ++l) {
        if (cell >= r.cells) break;
        if (r.conductances) r.conductances[cell * devices + k] = g[l];
        weight = weightWith(k, g[l], weight);
        variance = varianceWith(k, r.fresh * sigma[l], variance);
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

  /// The target in uS of device k of a cell for a weight.
  PULSORA_HD float targetOf(float w, int k) const { return conductanceOf(r.cell.target(w, k)); }
  /// The conductance in uS of a target in [0, 1].
  PULSORA_HD float conductanceOf(float target) const {
    return pulsora::fma(target, p.g_max - p.g_min, p.g_min);
  }
  /// The weight of a cell's devices up to device k, of conductance g, where `weight` is that of the
  /// devices before.
  PULSORA_HD float weightWith(int k, float g, float weight) const {
    return pulsora::fma(r.cell.device[k].share, (g - p.g_min) * perConductance(), weight);
  }
  /// The variance of the weight that each read draws, likewise; `sigma` is the standard deviation
  /// that device k has in it.
  PULSORA_HD float varianceWith(int k, float sigma, float variance) const {
    const float spread = r.cell.device[k].share * (sigma * perConductance());
    return pulsora::fma(spread, spread, variance);
  }
  /// 1 uS as a share of the range of a device.
  PULSORA_HD float perConductance() const {
    return pulsora::quotientOfNormal(1.0f, p.g_max - p.g_min);
  }
  /// `device` where a random word does not make it stuck; else its stuck value for each end.
  PULSORA_HD float stuck(uint32_t word, float device, float low, float high) const {
    const float u = uniform(word);
    device = pulsora::select(u < r.stuckLow, low, device);
    return pulsora::select(u >= 1.0f - r.stuckHigh, high, device);
  }
  /// Whether devices may be stuck.
  PULSORA_HD bool sticks() const { return r.stuckLow + r.stuckHigh > 0.0f; }

  /// Takes the conductances of stuck devices of a block, and that they have no read noise.
  PULSORA_HD void stickDevices(uint64_t block, float *g, float *sigma) const {
    for (uint32_t half = 0; half < 2; ++half) {
      const Philox4 words = draw(r.keys.chip, Purpose::Program, block, 0, kStuckIndex + half);
      for (uint32_t l = 0; l < 4; ++l) {
        const uint32_t at = 4 * half + l;
        g[at] = stuck(words.v[l], g[at], p.g_min, p.g_max);
        sigma[at] = stuck(words.v[l], sigma[at], 0.0f, 0.0f);
      }
    }
  }

  /// The measured conductance of a device, or its target beyond the last device.
  PULSORA_HD float measured(int64_t device, float target) const {
    return device < r.cells * r.cell.devices ? r.measured[device] : target;
  }
  /// The normals of a block of eight devices.
  PULSORA_HD Normal8 normals(RandomKey key, Purpose purpose, uint64_t block) const {
    return normal8(draw(key, purpose, block, r.number, kErrorIndex));
  }

 private:
  /// The programmed conductance of a device of the cells.
  PULSORA_HD float programmed(int64_t device, float target, float xi) const {
    if (r.measured) return measured(device, target);
    return r.exact ? target : Model::programmed(target, xi, p);
  }

  /// Targets in uS of eight devices from device k of a cell on.
  PULSORA_HD void targets(int64_t cell, int k, float *target) const {
    for (int l = 0; l < 8; ++l) {
      const float w = r.wanted && cell < r.cells ? r.wanted[cell] : 0.0f;
      target[l] = targetOf(w, k);
      const bool last = k + 1 == r.cell.devices;
      cell += last ? 1 : 0;
      k = last ? 0 : k + 1;
    }
  }

  /// Conductances of the eight devices of a block, from device `first` of the cells on, and the
  /// standard deviations of their read noise.
  PULSORA_HD void eight(uint64_t block, int64_t first, const float *target, float *g,
                        float *sigma) const {
    if (r.which == Conductances::Target) {
      for (int l = 0; l < 8; ++l) g[l] = target[l];
      return;
    }
    const Normal8 error = r.exact ? Normal8{} : normals(r.keys.device, Purpose::Program, block);
    if (r.which == Conductances::Programmed) {
      for (int l = 0; l < 8; ++l) g[l] = programmed(first + l, target[l], error.z[l]);
    } else {
      const Normal8 kept = normals(r.keys.device, Purpose::Drift, block);
      const Normal8 anew = normals(r.keys.reading, Purpose::Drift, block);
      const Normal8 read = normals(r.keys.reading, Purpose::Program, block);
      for (int l = 0; l < 8; ++l) {
        const DeviceDraws draws{error.z[l], {kept.z[l], anew.z[l]}, read.z[l]};
        const float start = programmed(first + l, target[l], error.z[l]);
        const DeviceReading seen = readingOf<Model>(target[l], start, draws, time, p, r.frozen);
        g[l] = seen.conductance;
        sigma[l] = seen.sigma;
      }
    }
    if (sticks()) stickDevices(block, g, sigma);
  }
};

/// Realise for several readings of cells of two devices.
template <class Model>
struct RealiseReadings {
  static constexpr int kMost = 12;

  Realise<Model> work;  ///< the cells; its own reading is not made
  int count;
  CellReading<Model> readings[kMost];

  PULSORA_HD void operator()(int64_t group) const {
    if (lengthsAreUsual(work.p)) {
      readAll(PairsOfBlock<Realise<Model>, Model, true>(work, group, true));
    } else {
      readAll(PairsOfBlock<Realise<Model>, Model, false>(work, group, true));
    }
  }

 private:
  template <class Pairs>
  PULSORA_HD void readAll(const Pairs &pairs) const {
    for (int n = 0; n < count; ++n) pairs.read(readings[n]);
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
