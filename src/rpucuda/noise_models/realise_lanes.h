#pragma once

#include <cstdint>
#include <type_traits>

#include "core/isa.h"
#include "noise_models/realise_cells.h"
#include "noise_models/usual_lengths.h"
#include "numerics/philox_batch.h"

// Realise for 16 groups at a time, in translation units compiled per instruction set. A lane is a
// group: what depends on the place within a group alone, such as the member of a pair, is the same
// for all lanes. The results have the bits of Realise.

namespace pulsora {
template <Isa isa, class Model>
class RealiseLanes {
  using Params = typename Model::Params;
  using Time = typename Model::Time;

  static constexpr int kLanes = kPhiloxBatch;
  static constexpr int kMostCells = 8;  // of a group
  /// Devices of one block of each lane. Device l of lane i is at l * kLanes + i.
  static constexpr int kDevices = 8 * kLanes;
  using Devices = float[kDevices];
  using Cells = float[kMostCells][kLanes];

 public:
  /// Makes the groups [begin, end).
  static void run(const Realise<Model> &work, int64_t begin, int64_t end) {
    const Realisation &r = work.r;
    const int64_t blocks = r.cellsOfGroup() * r.cell.devices / 8;
    const uint64_t lastBlock = r.firstDevice / 8 + static_cast<uint64_t>(end * blocks);
    if (lastBlock >> 32 != 0) {  // beyond the elements of a batch of random words
      for (int64_t group = begin; group < end; ++group) work(group);
      return;
    }
    const bool usual = lengthsAreUsual(work.p);
    for (int64_t first = begin; first < end; first += kLanes) {
      const RealiseLanes lanes(work, usual, first, end - first < kLanes ? end - first : kLanes);
      if (r.cell.devices == 2) {
        lanes.make<4, 2>();
      } else if (r.cell.devices == 1) {
        lanes.make<8, 1>();
      } else {
        lanes.make<0, 0>();
      }
    }
  }

 private:
  PULSORA_HD RealiseLanes(const Realise<Model> &work, bool usual, int64_t first, int64_t groups)
      : work_(work), r_(work.r), usual_(usual), first_(first), groups_(groups) {}

  /// Makes the cells of the lanes. The numbers of cells of a group and of devices of a cell may be
  /// known to the compiler; else they are 0.
  template <int kCells, int kDevicesOfCell>
  PULSORA_HD void make() const {
    const int cells = kCells > 0 ? kCells : static_cast<int>(r_.cellsOfGroup());
    const int devices = kCells > 0 ? kDevicesOfCell : r_.cell.devices;
    const int blocks = cells * devices / 8;
    const int64_t firstCell = first_ * cells;
    const int64_t left = r_.cells - firstCell;
    const int64_t count = left < groups_ * cells ? left : groups_ * cells;
    Cells w = {};
    if (r_.wanted) load(r_.wanted + firstCell, cells, count, w);
    Cells weight = {};
    Cells variance = {};
    int cell = 0;
    int k = 0;
    for (int block = 0; block < blocks; ++block) {
      Devices target;
      Devices g;
      Devices sigma;
      int c = cell;
      int m = k;
      for (int l = 0; l < 8; ++l) {
        for (int i = 0; i < kLanes; ++i) target[l * kLanes + i] = work_.targetOf(w[c][i], m);
        const bool last = m + 1 == devices;
        c += last ? 1 : 0;
        m = last ? 0 : m + 1;
      }
      if (usual_) {
        devicesOf<true>(block, blocks, target, g, sigma);
      } else {
        devicesOf<false>(block, blocks, target, g, sigma);
      }
      for (int l = 0; l < 8; ++l) {
        const float *seen = g + l * kLanes;
        for (int i = 0; i < kLanes; ++i) {
          const float before = k == 0 ? r_.cell.constant : weight[cell][i];
          weight[cell][i] = work_.weightWith(k, seen[i], before);
        }
        if (r_.variance) {
          for (int i = 0; i < kLanes; ++i) {
            const float before = k == 0 ? 0.0f : variance[cell][i];
            variance[cell][i] = work_.varianceWith(k, r_.fresh * sigma[l * kLanes + i], before);
          }
        }
        if (r_.conductances) {
          for (int i = 0; i < kLanes && i * cells + cell < count; ++i)
            r_.conductances[(firstCell + i * cells + cell) * devices + k] = seen[i];
        }
        const bool last = k + 1 == devices;
        cell += last ? 1 : 0;
        k = last ? 0 : k + 1;
      }
    }
    if (r_.weights) store(weight, cells, count, r_.weights + firstCell);
    if (r_.variance) store(variance, cells, count, r_.variance + firstCell);
  }

  static PULSORA_HD void load(const float *from, int cells, int64_t count, Cells &to) {
    if (count == kLanes * cells) {
      for (int i = 0; i < kLanes; ++i)
        for (int c = 0; c < cells; ++c) to[c][i] = from[i * cells + c];
    } else {
      for (int i = 0; i < kLanes; ++i)
        for (int c = 0; c < cells && i * cells + c < count; ++c) to[c][i] = from[i * cells + c];
    }
  }
  static PULSORA_HD void store(const Cells &from, int cells, int64_t count, float *to) {
    if (count == kLanes * cells) {
      for (int i = 0; i < kLanes; ++i)
        for (int c = 0; c < cells; ++c) to[i * cells + c] = from[c][i];
    } else {
      for (int i = 0; i < kLanes; ++i)
        for (int c = 0; c < cells && i * cells + c < count; ++c) to[i * cells + c] = from[c][i];
    }
  }

  /// Conductances of the devices of a block of each lane, and the standard deviations of their read
  /// noise. Not inlined, so that there is one copy of the model's arithmetic for all encodings.
  template <bool kUsual>
  __attribute__((noinline)) void devicesOf(int block, int blocks, const Devices &target, Devices &g,
                                           Devices &sigma) const {
    Params p = work_.p;
    if constexpr (kUsual && detail::HasUsual<Params>::value) p.usual(detail::SetUsual{});
    for (int i = 0; i < kDevices; ++i) {
      g[i] = target[i];
      sigma[i] = 0.0f;
    }
    if (r_.which == Conductances::Target) return;
    uint32_t elements[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      elements[i] = static_cast<uint32_t>(r_.firstDevice / 8 +
                                          static_cast<uint64_t>((first_ + i) * blocks + block));
    }
    Devices error = {};
    if (!r_.exact) normals(elements, r_.keys.device, Purpose::Program, error);
    if (r_.measured) {
      takeMeasured(block, blocks, g);
    } else if (!r_.exact) {
      for (int i = 0; i < kDevices; ++i) g[i] = Model::programmed(target[i], error[i], p);
    }
    if (r_.which == Conductances::Now) readDevices(elements, target, error, p, g, sigma);
    if (work_.sticks()) stick(elements, p, g, sigma);
  }

  PULSORA_HD void takeMeasured(int block, int blocks, Devices &g) const {
    for (int i = 0; i < kLanes; ++i) {
      const int64_t first = ((first_ + i) * blocks + block) * 8;
      for (int l = 0; l < 8 && first + l < r_.cells * r_.cell.devices; ++l)
        g[l * kLanes + i] = r_.measured[first + l];
    }
  }

  /// Replaces programmed conductances by those that are read.
  PULSORA_HD void readDevices(const uint32_t (&elements)[kLanes], const Devices &target,
                              const Devices &error, const Params &p, Devices &g,
                              Devices &sigma) const {
    const Time time = work_.time;
    const float frozen = r_.frozen;
    Devices read;
    normals(elements, r_.keys.reading, Purpose::Program, read);
    if (!driftsAt<Model>(time)) {
      for (int i = 0; i < kDevices; ++i) {
        const DeviceReading seen = readingOfDrifted<Model>(g[i], g[i], read[i], time, p, frozen);
        g[i] = seen.conductance;
        sigma[i] = seen.sigma;
      }
      return;
    }
    Devices kept;
    Devices anew;
    normals(elements, r_.keys.device, Purpose::Drift, kept);
    normals(elements, r_.keys.reading, Purpose::Drift, anew);
    for (int i = 0; i < kDevices; ++i) {
      const DeviceDraws draws{error[i], {kept[i], anew[i]}, read[i]};
      const DeviceReading seen = readingOf<Model>(target[i], g[i], draws, time, p, frozen);
      g[i] = seen.conductance;
      sigma[i] = seen.sigma;
    }
  }

  PULSORA_HD void stick(const uint32_t (&elements)[kLanes], const Params &p, Devices &g,
                        Devices &sigma) const {
    const uint32_t samples[kLanes] = {};
    for (int half = 0; half < 2; ++half) {
      PhiloxBatch batch;
      drawBatch(r_.keys.chip, Purpose::Program, elements, samples, 0,
                kStuckIndex + static_cast<uint32_t>(half), batch);
      for (int l = 0; l < 4; ++l) {
        for (int i = 0; i < kLanes; ++i) {
          const int at = (4 * half + l) * kLanes + i;
          g[at] = work_.stuck(batch.words[l][i], g[at], p.g_min, p.g_max);
          sigma[at] = work_.stuck(batch.words[l][i], sigma[at], 0.0f, 0.0f);
        }
      }
    }
  }

  PULSORA_HD void normals(const uint32_t (&elements)[kLanes], RandomKey key, Purpose purpose,
                          Devices &z) const {
    uint32_t samples[kLanes];
    for (uint32_t &sample : samples) sample = static_cast<uint32_t>(r_.number);
    PhiloxBatch batch;
    drawBatch(key, purpose, elements, samples, static_cast<uint32_t>(r_.number >> 32), kErrorIndex,
              batch);
    for (int m = 0; m < 4; ++m) {
      for (int i = 0; i < kLanes; ++i) {
        const NormalPair pair = normalPair16(batch.words[m][i]);
        z[2 * m * kLanes + i] = pair.z0;
        z[(2 * m + 1) * kLanes + i] = pair.z1;
      }
    }
  }

  const Realise<Model> &work_;
  const Realisation &r_;
  bool usual_;
  int64_t first_;
  int64_t groups_;
};

}  // namespace pulsora
