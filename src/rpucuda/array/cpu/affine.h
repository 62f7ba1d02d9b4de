#pragma once

#include "array/cpu/block.h"

// Moments of the lanes of a block over a mini-batch (devices/affine_moments.h), for updates with
// noise_merge = "batch" of models whose step is an affine function of the weight.

namespace pulsora {
namespace cpu {

template <Isa isa, class Device, bool kMultiplicative>
class LaneMoments {
 public:
  using Cells = Block<isa, Device>;
  using Params = typename Device::Params;

  PULSORA_HD explicit LaneMoments(const Params &p) : p_(p) {}

  /// Takes the block through its samples. Returns the number of coincidences; with 0 nothing was
  /// loaded, and finish() must not be called.
  PULSORA_HD uint64_t run(Cells &b, const PulseWords &words) {
    constexpr int kSparseSlots = 4;  // up to here most samples leave most cells alone
    if (hasLevels(words.kind)) {
      runLevels(b, words);
    } else if (words.layout->slots <= kSparseSlots) {
      runSparse(b, words);
    } else {
      runDense(b, words);
    }
    uint64_t total = 0;
    for (int j = 0; j < kBlock; ++j) total += pulses_[j];
    return total;
  }

  /// Draws the weights with normals z. Lanes in which this does not hold are marked in `deferred`
  /// and keep their weights.
  PULSORA_HD void finish(Cells &b, const float (&z)[kBlock], uint32_t (&deferred)[kBlock]) const {
    for (int j = 0; j < kBlock; ++j) {
      bool holds = false;
      const float w = b.weight(j);
      const float drawn = gather<AffineMoments>(moments_, j)
                              .template drawn<kMultiplicative>(w, gather<AffineMaps>(maps_, j),
                                                               b.response(j), p_, z[j], holds);
      deferred[j] = holds ? 0U : 1U;
      b.weight(j) = holds ? drawn : w;
    }
  }

 private:
  static constexpr int kMostRounds = 16;

  template <class Members, int kMembers>
  static PULSORA_HD Members gather(const float (&members)[kMembers][kBlock], int lane) {
    static_assert(sizeof(Members) == kMembers * sizeof(float), "members are floats");
    Members all;
    int m = 0;
    all.members([&](float &value) { value = members[m++][lane]; });
    return all;
  }

  PULSORA_HD void load(Cells &b) {
    if (loaded_) return;
    loaded_ = true;
    b.template load<false>();
    for (int j = 0; j < kBlock; ++j) {
      AffineMaps maps = Device::affineMaps(b.response(j), p_);
      int m = 0;
      maps.members([&](float &value) { maps_[m++][j] = value; });
      AffineMoments moments = AffineMoments::of(b.weight(j));
      m = 0;
      moments.members([&](float &value) { moments_[m++][j] = value; });
    }
  }

  /// A sample of every lane, with signed counts n.
  PULSORA_HD void add(const float (&n)[kBlock]) {
    for (int j = 0; j < kBlock; ++j) {
      AffineMoments moments = gather<AffineMoments>(moments_, j);
      moments.template add<kMultiplicative>(pulsora::abs(n[j]), n[j] > 0.0f,
                                            gather<AffineMaps>(maps_, j), p_.dw_min_std);
      int m = 0;
      moments.members([&](float &value) { moments_[m++][j] = value; });
    }
  }

  PULSORA_HD void runLevels(Cells &b, const PulseWords &words) {
    for (int64_t s = 0; s < words.sampleCount(); ++s) {
      float n[kBlock];
      b.countLevels(words, s, n);
      uint32_t any = 0;
      for (int j = 0; j < kBlock; ++j) {
        const auto count = static_cast<uint32_t>(static_cast<int32_t>(pulsora::abs(n[j])));
        pulses_[j] += count;
        any |= count;
      }
      if (!any) continue;
      load(b);
      add(n);
    }
  }

  PULSORA_HD void runDense(Cells &b, const PulseWords &words) {
    const PulseLayout layout = *words.layout;
    const uint32_t mask = slotMask(layout.slots);
    float n[kBlock];
    bool hit = false;
    int64_t word = -1;
    for (int64_t s = 0; s < words.sampleCount(); ++s) {
      const SlotPlace place = SlotPlace::of(layout, s);
      if (place.word != word) hit = b.loadWord(words, place.word);
      word = place.word;
      bool fires = hit && (b.anyD() >> place.shift & mask);
      if (fires) b.count(place.shift, mask, n, pulses_);
      for (int part = 1; part < layout.wordsPerSample; ++part) {
        float more[kBlock];
        if (!b.loadWord(words, place.word + part)) continue;
        b.count(0, mask, more, pulses_);
        for (int j = 0; j < kBlock; ++j) n[j] = fires ? n[j] + more[j] : more[j];
        fires = true;
      }
      if (!fires) continue;
      load(b);
      add(n);
    }
  }

  /// Coincidences are listed, and then taken in rounds: the first of every lane, then the second of
  /// every lane, and so on. A lane takes its coincidences in the order of samples.
  PULSORA_HD void runSparse(Cells &b, const PulseWords &words) {
    const PulseLayout layout = *words.layout;
    const uint32_t slots = slotMask(layout.slots);
    const int64_t count = layout.words(words.sampleCount());
    for (int64_t word = 0; word < count; ++word) {
      if (!b.loadWord(words, word)) continue;
      for (uint32_t left = b.anyD(); left;) {
        const int shift = __builtin_ctz(left) / layout.slots * layout.slots;
        left &= ~(slots << shift);
        uint64_t lanes = lanesWith(b.both(), slots << shift);
        if (!lanes) continue;
        if (rounds_ == kMostRounds) addRounds(b);
        for (; lanes; lanes &= lanes - 1) {
          const int lane = __builtin_ctzll(lanes);
          const int round = taken_[lane]++;
          if (round == rounds_) {
            for (int j = 0; j < kBlock; ++j) n_[round][j] = 0.0f;
            ++rounds_;
          }
          const uint32_t pulses = b.template pulsesOf<false>(lane, shift, slots);
          pulses_[lane] += pulses;
          n_[round][lane] = b.signedCount(lane, shift, pulses);
        }
      }
    }
    addRounds(b);
  }

  PULSORA_HD void addRounds(Cells &b) {
    if (rounds_ == 0) return;
    load(b);
    for (int r = 0; r < rounds_; ++r) add(n_[r]);
    for (int j = 0; j < kBlock; ++j) taken_[j] = 0;
    rounds_ = 0;
  }

  const Params &p_;
  bool loaded_ = false;
  int rounds_ = 0;
  uint32_t pulses_[kBlock] = {};
  int32_t taken_[kBlock] = {};
  float moments_[sizeof(AffineMoments) / sizeof(float)][kBlock];
  float maps_[sizeof(AffineMaps) / sizeof(float)][kBlock];
  float n_[kMostRounds][kBlock];
};

}  // namespace cpu
}  // namespace pulsora
