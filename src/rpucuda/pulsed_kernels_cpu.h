#pragma once

#include "core/half.h"
#include "core/isa.h"
#include "devices/cell_events.h"
#include "devices/pulse_rule.h"
#include "pulsed_kernels.h"

// The CPU kernels of a device model, compiled once per instruction set from this one text. Lanes are kBlock neighbouring
// cells; every loop over lanes is free of branches and calls, so that the compiler turns it into vector code. The steps
// themselves are those of devices/pulse_rule.h.
//
// A translation unit that includes this header is compiled with -march flags of its own: it must not instantiate anything
// that other units could share (std:: containers, non-inlined functions), hence the raw pointers and the ISA parameter.

namespace RPU {

/// The kernels of `Device` for `isa`; instantiated by one generated source file per pair.
template <class Device, Isa isa>
const PulsedKernels &cpuKernels();

namespace cpu {

constexpr int kBlock = 64;

template <Isa isa, class Device>
struct Kernels {
  using Params = typename Device::Params;
  using Cell = typename Device::Cell;
  using Response = typename Device::Response;
  static constexpr int kCellMembers = sizeof(Cell) / sizeof(float);
  static constexpr int kResponseMembers = sizeof(Response) / sizeof(float);

  static const Params &paramsOf(const CellArray &a) { return *static_cast<const Params *>(a.params); }

  // --- cells -----------------------------------------------------------------------------------------------------

  static void construct(const CellArray &a, uint16_t *cells, int64_t begin, int64_t end, void *) {
    const Params &p = paramsOf(a);
    const int64_t plane = a.size();
    for (int64_t i = begin; i < end; ++i) {
      CellDraws draws(a.key, static_cast<uint64_t>(i));
      Cell cell = Device::construct(p, draws, i % a.cols == a.cols - 1);
      int64_t at = i;
      cell.members([&](const char *, float &value) {
        cells[at] = floatToHalf(value);
        at += plane;
      });
    }
  }

  static RPU_HD Response responseOf(const CellArray &a, const Params &p, int64_t i) {
    Cell cell;
    const int64_t plane = a.size();
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      value = halfToFloat(a.cells[at]);
      at += plane;
    });
    return Device::response(cell, p);
  }

  /// Responses of a block in structure-of-arrays form.
  struct ResponseBlock {
    float member[kResponseMembers][kBlock];

    RPU_HD Response at(int j) const {
      Response r;
      int m = 0;
      r.members([&](float &value) { value = member[m++][j]; });
      return r;
    }
    RPU_HD void set(int j, Response r) {
      int m = 0;
      r.members([&](float &value) { member[m++][j] = value; });
    }
  };

  // --- one block of cells during an update --------------------------------------------------------------------------

  struct Block {
    int64_t first;  // index of lane 0
    int count;      // lanes in use; the others are computed and thrown away
    float w[kBlock];
    ResponseBlock response;
    uint32_t xBits[kBlock], xSigns[kBlock], dBits[kBlock], dSigns[kBlock], dOther[kBlock];
    int xLine[kBlock], dLine[kBlock];
  };

  /// Signed coincidences of every lane (negative: down) and the normals they go with, for one sample of each lane.
  struct Coincidences {
    float n[kBlock];
    float z[kBlock];
  };

  static void load(Block &b, const CellArray &a, const Params &p, int64_t first, int count) {
    b.first = first;
    b.count = count;
    const int64_t plane = a.size();
    float members[kCellMembers][kBlock];
    for (int m = 0; m < kCellMembers; ++m) {
      const uint16_t *cells = a.cells + m * plane + first;
      for (int j = 0; j < count; ++j) members[m][j] = halfToFloat(cells[j]);
      for (int j = count; j < kBlock; ++j) members[m][j] = 1.0f;
    }
    for (int j = 0; j < kBlock; ++j) {
      Cell cell;
      int m = 0;
      cell.members([&](const char *, float &value) { value = members[m++][j]; });
      b.response.set(j, Device::response(cell, p));
    }
    for (int j = 0; j < count; ++j) b.w[j] = a.weights[first + j];
    for (int j = count; j < kBlock; ++j) b.w[j] = 0.0f;
    int64_t row = first / a.cols;
    int64_t col = first % a.cols;
    for (int j = 0; j < kBlock; ++j) {
      b.xLine[j] = static_cast<int>(col);
      b.dLine[j] = static_cast<int>(row);
      if (j + 1 < count && ++col == a.cols) {
        col = 0;
        ++row;
      }
    }
  }

  static void store(const Block &b, const CellArray &a) {
    for (int j = 0; j < b.count; ++j) a.weights[b.first + j] = b.w[j];
  }

  /// The rule of pulse_rule.h for a whole block. `sample(j)` is lane j's global sample index.
  template <bool kAtMostOne, class SampleOf>
  static RPU_HD void apply(Block &b, const CellArray &a, const Params &p, const Coincidences &c, const SampleOf &sample) {
    float next[kBlock];
    uint32_t redo[kBlock];
    uint32_t anyRedo = 0;
    for (int j = 0; j < kBlock; ++j) {
      const Response r = b.response.at(j);
      const float w = b.w[j];
      const bool up = c.n[j] > 0.0f;
      const float n = RPU::abs(c.n[j]);
      const float one = onePulse<Device>(w, up, r, p, c.z[j]);
      float result = n == 0.0f ? w : one;
      if constexpr (!kAtMostOne) {
        bool holds = false;
        if constexpr (kHasClosedForm<Device>) {
          const float closed = closedPulses<Device>(w, n, up, r, p, c.z[j], holds);
          result = n > 1.0f ? closed : result;
        }
        redo[j] = static_cast<uint32_t>((n > 1.0f) & !holds);
        anyRedo |= redo[j];
      }
      next[j] = result;
    }
    if constexpr (!kAtMostOne) {
      if (anyRedo) pulseByPulse(b, a, p, c, sample, redo, next);
    }
    for (int j = 0; j < kBlock; ++j) b.w[j] = next[j];
  }

  /// sequentialPulses() for the lanes marked in `redo`.
  template <class SampleOf>
  static RPU_HD void pulseByPulse(Block &b, const CellArray &a, const Params &p, const Coincidences &c,
                                  const SampleOf &sample, const uint32_t (&redo)[kBlock], float (&next)[kBlock]) {
    int lanes = 0;
    int longest = 0;
    for (int j = 0; j < kBlock; ++j) {
      lanes += static_cast<int>(redo[j]);
      const int n = redo[j] ? static_cast<int>(RPU::abs(c.n[j])) : 0;
      longest = n > longest ? n : longest;
    }
    if (lanes <= 4) {
      for (int j = 0; j < b.count; ++j) {
        if (!redo[j]) continue;
        next[j] = sequentialPulses<Device>(b.w[j], static_cast<int>(RPU::abs(c.n[j])), c.n[j] > 0.0f, b.response.at(j),
                                           p, c.z[j], a.key, static_cast<uint32_t>(b.first + j), sample(j));
      }
      return;
    }
    float xi[8][kBlock];
    for (int j = 0; j < kBlock; ++j) next[j] = redo[j] ? b.w[j] : next[j];
    for (int k = 0; k < longest; ++k) {
      if (k % 8 == 0) {
        for (int j = 0; j < kBlock; ++j) {
          const Normal8 normals = normal8(draw(a.key, Purpose::CyclePulse, static_cast<uint32_t>(b.first + j), sample(j),
                                               static_cast<uint32_t>(k >> 3)));
          for (int m = 0; m < 8; ++m) xi[m][j] = normals.z[m];
        }
      }
      for (int j = 0; j < kBlock; ++j) {
        const float z = k == 0 ? c.z[j] : xi[k & 7][j];
        const float moved = onePulse<Device>(next[j], c.n[j] > 0.0f, b.response.at(j), p, z);
        const bool active = (redo[j] != 0) & (static_cast<float>(k) < RPU::abs(c.n[j]));
        next[j] = active ? moved : next[j];
      }
    }
  }

  // --- coincidences ------------------------------------------------------------------------------------------------

  static void loadWord(Block &b, const PulseWords &p, int64_t word) {
    const uint32_t *xb = p.xBits + word * p.xSize;
    const uint32_t *xs = p.xSigns + word * p.xSize;
    const uint32_t *db = p.dBits + word * p.dSize;
    const uint32_t *ds = p.dSigns + word * p.dSize;
    if (b.dLine[0] == b.dLine[kBlock - 1]) {  // the block lies within one row
      const int col = b.xLine[0];
      const int row = b.dLine[0];
      for (int j = 0; j < kBlock; ++j) {
        b.xBits[j] = xb[col + j];
        b.xSigns[j] = xs[col + j];
        b.dBits[j] = db[row];
        b.dSigns[j] = ds[row];
      }
    } else {
      for (int j = 0; j < kBlock; ++j) {
        b.xBits[j] = xb[b.xLine[j]];
        b.xSigns[j] = xs[b.xLine[j]];
        b.dBits[j] = db[b.dLine[j]];
        b.dSigns[j] = ds[b.dLine[j]];
      }
    }
    if (p.kind == PulseKind::TwoPass) {
      const uint32_t *other = p.dBitsNegativeX + word * p.dSize;
      for (int j = 0; j < kBlock; ++j) {
        b.dBits[j] = (b.dBits[j] & ~b.xSigns[j]) | (other[b.dLine[j]] & b.xSigns[j]);
      }
    }
    for (int j = b.count; j < kBlock; ++j) b.xBits[j] = 0;
  }

  /// Signed counts of sample `s`, and their sum without signs.
  static RPU_HD uint32_t countWords(Block &b, const PulseWords &p, int64_t s, int64_t &loadedWord, float (&n)[kBlock]) {
    const PulseLayout layout = *p.layout;
    const int64_t word = layout.samplesPerWord > 1 ? s / layout.samplesPerWord : s * layout.wordsPerSample;
    const int shift = static_cast<int>(s % layout.samplesPerWord) * layout.slots;
    const uint32_t mask = slotMask(layout.slots);
    uint32_t total = 0;
    for (int part = 0; part < layout.wordsPerSample; ++part) {
      if (word + part != loadedWord) {
        loadWord(b, p, word + part);
        loadedWord = word + part;
      }
      for (int j = 0; j < kBlock; ++j) {
        const uint32_t count = popcount(((b.xBits[j] & b.dBits[j]) >> shift) & mask);
        const uint32_t differ = ((b.xSigns[j] ^ b.dSigns[j]) >> shift) & 1u;
        const float add = static_cast<float>(static_cast<int32_t>(count));
        n[j] = (part ? n[j] : 0.0f) + (differ ? add : -add);
        total += count;
      }
    }
    return total;
  }

  static RPU_HD uint32_t countLevels(Block &b, const PulseWords &p, int64_t s, float (&n)[kBlock]) {
    const float *x = p.xLevels + s * p.xSize;
    const float *d = p.dLevels + s * p.dSize;
    const float length = static_cast<float>(p.trainLength[s]);
    const float scale = p.kind == PulseKind::MeanCount ? (length > 0.0f ? 1.0f / length : 0.0f) : length;
    uint32_t total = 0;
    for (int j = 0; j < kBlock; ++j) {
      // Equal signs step the cell down.
      n[j] = j < b.count ? -RPU::rint(x[b.xLine[j]] * d[b.dLine[j]] * scale) : 0.0f;
      total += static_cast<uint32_t>(RPU::abs(n[j]));
    }
    return total;
  }

  // --- updates -----------------------------------------------------------------------------------------------------

  /// Sample by sample over a block; normals are made for eight samples at a time.
  static uint64_t updateDense(Block &b, const CellArray &a, const Params &p, const PulseWords &words) {
    uint64_t pulses = 0;
    int64_t loadedWord = -1;
    float counts[8][kBlock];
    Coincidences c;
    uint32_t random[4][kBlock];
    float normals[8][kBlock];
    for (int64_t s = 0; s < words.samples;) {
      const uint64_t global = words.firstSample + static_cast<uint64_t>(s);
      const int offset = static_cast<int>(global & 7);
      const int take = static_cast<int>(words.samples - s < 8 - offset ? words.samples - s : 8 - offset);
      uint32_t totals[8];
      uint32_t total = 0;
      for (int t = 0; t < take; ++t) {
        totals[t] = words.kind <= PulseKind::TwoPass ? countWords(b, words, s + t, loadedWord, counts[t])
                                                      : countLevels(b, words, s + t, counts[t]);
        total += totals[t];
      }
      pulses += total;
      if (total) {
        const uint64_t block = global >> 3;
        for (int j = 0; j < kBlock; ++j) {
          const Philox4 r = draw(a.key, Purpose::CycleNoise, static_cast<uint32_t>(b.first) + static_cast<uint32_t>(j), block);
          for (int m = 0; m < 4; ++m) random[m][j] = r.v[m];
        }
        for (int m = 0; m < 4; ++m) {
          for (int j = 0; j < kBlock; ++j) {
            const NormalPair pair = normalPair16(random[m][j]);
            normals[2 * m][j] = pair.z0;
            normals[2 * m + 1][j] = pair.z1;
          }
        }
        for (int t = 0; t < take; ++t) {
          if (!totals[t]) continue;
          for (int j = 0; j < kBlock; ++j) {
            c.n[j] = counts[t][j];
            c.z[j] = normals[offset + t][j];
          }
          const uint64_t sample = global + static_cast<uint64_t>(t);
          apply<false>(b, a, p, c, [sample](int) { return sample; });
        }
      }
      s += take;
    }
    return pulses;
  }

  /// The coincidences of one word, listed cell by cell, so that normals are made for them alone.
  struct EventList {
    static constexpr int kMax = kBlock * 32;
    int size;
    int rounds;                 // the most events of any cell
    uint8_t lane[kMax];
    uint8_t sample[kMax];       // within the word
    uint8_t round[kMax];        // place among its cell's events
    int8_t count[kMax];         // signed
    float z[kMax];
    uint32_t random[kMax];
  };

  template <bool kAtMostOne>
  static RPU_HD uint32_t listEvents(EventList &events, const Block &b, const PulseLayout &layout, int samplesInWord) {
    uint32_t both[kBlock];
    uint32_t differ[kBlock];
    const uint32_t used = slotMask(samplesInWord * layout.slots);
    for (int j = 0; j < kBlock; ++j) {
      both[j] = b.xBits[j] & b.dBits[j] & used;
      differ[j] = b.xSigns[j] ^ b.dSigns[j];
    }
    uint32_t pulses = 0;
    int size = 0;
    int rounds = 0;
    for (int j = 0; j < b.count; ++j) {
      uint32_t bits = both[j];
      int round = 0;
      while (bits) {
        const int slot = __builtin_ctz(bits);
        int sample = slot;
        int n = 1;
        if constexpr (kAtMostOne) {
          bits &= bits - 1;
        } else {
          sample = slot / layout.slots;
          const uint32_t mask = slotMask(layout.slots) << (sample * layout.slots);
          n = static_cast<int>(popcount(bits & mask));
          bits &= ~mask;
        }
        events.lane[size] = static_cast<uint8_t>(j);
        events.sample[size] = static_cast<uint8_t>(sample);
        events.round[size] = static_cast<uint8_t>(round++);
        events.count[size] = static_cast<int8_t>((differ[j] >> slot & 1u) ? n : -n);
        pulses += static_cast<uint32_t>(n);
        ++size;
      }
      rounds = round > rounds ? round : rounds;
    }
    events.size = size;
    events.rounds = rounds;
    return pulses;
  }

  /// Event by event over a block; for short trains, where most samples leave most cells alone.
  template <bool kAtMostOne>
  static uint64_t updateSparse(Block &b, const CellArray &a, const Params &p, const PulseWords &words) {
    EventList events;
    float n[32][kBlock];
    float z[32][kBlock];
    uint8_t sampleInWord[32][kBlock];
    const PulseLayout layout = *words.layout;
    uint64_t pulses = 0;
    const int64_t wordCount = layout.words(words.samples);
    for (int64_t word = 0; word < wordCount; ++word) {
      const int64_t firstInBatch = word * layout.samplesPerWord;
      const int64_t left = words.samples - firstInBatch;
      const uint64_t first = words.firstSample + static_cast<uint64_t>(firstInBatch);
      loadWord(b, words, word);
      pulses += listEvents<kAtMostOne>(events, b, layout,
                                       static_cast<int>(left < layout.samplesPerWord ? left : layout.samplesPerWord));
      if (events.size == 0) continue;
      for (int e = 0; e < events.size; ++e) {
        const uint64_t sample = first + events.sample[e];
        const Philox4 r = draw(a.key, Purpose::CycleNoise, static_cast<uint32_t>(b.first) + events.lane[e], sample >> 3);
        const uint32_t low = static_cast<uint32_t>(sample);
        const uint32_t even = low & 4u ? r.v[2] : r.v[0];
        const uint32_t odd = low & 4u ? r.v[3] : r.v[1];
        events.random[e] = low & 2u ? odd : even;
      }
      for (int e = 0; e < events.size; ++e) {
        const NormalPair pair = normalPair16(events.random[e]);
        const uint32_t low = static_cast<uint32_t>(first) + events.sample[e];
        events.z[e] = (low & 1u) ? pair.z1 : pair.z0;
      }
      for (int round = 0; round < events.rounds; ++round) {
        for (int j = 0; j < kBlock; ++j) n[round][j] = 0.0f;
      }
      for (int e = 0; e < events.size; ++e) {
        n[events.round[e]][events.lane[e]] = static_cast<float>(events.count[e]);
        z[events.round[e]][events.lane[e]] = events.z[e];
        sampleInWord[events.round[e]][events.lane[e]] = events.sample[e];
      }
      Coincidences c;
      for (int round = 0; round < events.rounds; ++round) {
        for (int j = 0; j < kBlock; ++j) {
          c.n[j] = n[round][j];
          c.z[j] = n[round][j] != 0.0f ? z[round][j] : 0.0f;
        }
        apply<kAtMostOne>(b, a, p, c, [&](int j) { return first + sampleInWord[round][j]; });
      }
    }
    return pulses;
  }

  static void update(const CellArray &a, const PulseWords &words, uint64_t *coincidences, int64_t begin, int64_t end,
                     void *) {
    constexpr int kSparseSlots = 4;  // up to here most samples leave most cells alone
    const Params p = paramsOf(a);
    const int slots = words.layout->slots;
    const bool sparse = words.kind <= PulseKind::TwoPass && slots <= kSparseSlots;
    Block b;
    uint64_t pulses = 0;
    for (int64_t first = begin; first < end;) {
      // Wide arrays are cut at the ends of rows, so that a block has one d line and neighbouring x lines.
      const int64_t rowEnd = a.cols >= kBlock ? (first / a.cols + 1) * a.cols : end;
      const int64_t blockEnd = first + kBlock;
      int64_t last = blockEnd < rowEnd ? blockEnd : rowEnd;
      last = last < end ? last : end;
      load(b, a, p, first, static_cast<int>(last - first));
      if (!sparse) {
        pulses += updateDense(b, a, p, words);
      } else if (slots == 1) {
        pulses += updateSparse<true>(b, a, p, words);
      } else {
        pulses += updateSparse<false>(b, a, p, words);
      }
      store(b, a);
      first = last;
    }
    __atomic_fetch_add(coincidences, pulses, __ATOMIC_RELAXED);
  }

  // --- everything else, cell by cell ---------------------------------------------------------------------------------

  static void clip(const CellArray &a, int64_t begin, int64_t end, void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) a.weights[i] = clipWeight(a.weights[i], responseOf(a, p, i));
  }

  static void describe(const CellArray &a, float *out, int64_t begin, int64_t end, void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) describeCell<Device>(a.weights[i], responseOf(a, p, i), p, out + i, a.size());
  }

  static void relax(const CellArray &a, const Relaxation &event, int64_t begin, int64_t end, void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) {
      a.weights[i] = relaxedWeight(a.weights[i], responseOf(a, p, i), p, event, a.key, i);
    }
  }

  static void reset(const CellArray &a, const ResetEvent &event, int64_t begin, int64_t end, void *) {
    const Params p = paramsOf(a);
    for (int64_t i = begin; i < end; ++i) {
      a.weights[i] = resetWeight(a.weights[i], responseOf(a, p, i), p, event, a.key, i, a.cols);
    }
  }
};

}  // namespace cpu

template <class Device, Isa isa>
const PulsedKernels &cpuKernels() {
  using K = cpu::Kernels<isa, Device>;
  static constexpr PulsedKernels kTable = {&K::construct, &K::update, &K::describe, &K::relax, &K::reset, &K::clip};
  return kTable;
}

}  // namespace RPU
