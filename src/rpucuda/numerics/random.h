#pragma once

#include <cstdint>

#include "core/platform.h"
#include "numerics/math.h"

namespace pulsora {

// The random-number contract
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a keyed
// bijection of 128-bit counters. A draw has no history: it is a function of *what* is drawn, and so
// does not depend on threads, grid, batch split, instruction set or backend.
//
//   key      = makeKey(seed, tile, array)
//   word 0   = element, bits 0..31            element: cell, line or output;  < 2^48
//   word 1   = sample, bits 0..31             sample: position in time;       < 2^48
//   word 2   = purpose << 24 | index          index: draw within one sample;  < 2^24
//   word 3   = element, bits 32..47 << 16 | sample, bits 32..47
//
// One counter gives four 32-bit words. For one normal per element and sample, one counter gives the
// normals of *eight consecutive samples*: the `sample` of the counter is then sample / 8, see
// normalOfSample().

/// Four random words, or a counter.
struct Philox4 {
  uint32_t v[4];
};

/// Word `index` (0 to 3) of a block, by selection, because an array indexed at run time would leave
/// the registers of a GPU.
PULSORA_HD uint32_t wordOf(const Philox4 &block, uint32_t index) {
  const uint32_t low = (index & 1U) != 0 ? block.v[1] : block.v[0];
  const uint32_t high = (index & 1U) != 0 ? block.v[3] : block.v[2];
  return (index & 2U) != 0 ? high : low;
}

/// Key of one array's random numbers.
struct RandomKey {
  uint32_t k0;
  uint32_t k1;
};

/// The use of a random number. The values are part of the contract: never renumber or reuse one,
/// only append (to 255).
enum class Purpose : uint32_t {
  Construct = 0,            ///< device-to-device spread of a cell
  XPulse = 1,               ///< pulse trains of the inputs x
  DPulse = 2,               ///< pulse trains of the gradients d
  XRound = 3,               ///< stochastic rounding of x before pulsing
  DRound = 4,               ///< stochastic rounding of d before pulsing
  CycleNoise = 5,           ///< cycle-to-cycle noise, one normal per cell and sample (closed forms)
  CyclePulse = 6,           ///< cycle-to-cycle noise, one normal per pulse (sequential devices)
  WriteNoise = 7,           ///< difference between the written and the stored weight
  ForwardInputNoise = 8,    ///< forward pass, noise of the DAC
  ForwardOutputNoise = 9,   ///< forward pass, noise before the ADC
  ForwardWeightNoise = 10,  ///< forward pass, read noise of the weights
  ForwardInputRound = 11,   ///< forward pass, stochastic rounding of the DAC
  ForwardOutputRound = 12,  ///< forward pass, stochastic rounding of the ADC
  BackwardInputNoise = 13,  ///< backward pass, noise of the DAC
  BackwardOutputNoise = 14,  ///< backward pass, noise before the ADC
  BackwardWeightNoise = 15,  ///< backward pass, read noise of the weights
  BackwardInputRound = 16,   ///< backward pass, stochastic rounding of the DAC
  BackwardOutputRound = 17,  ///< backward pass, stochastic rounding of the ADC
  IoConstruct = 18,          ///< fixed spreads of converters and lines
  Reinit = 19,               ///< re-initialisation of an adapter array after a transfer
  Decay = 20,                ///< spread of weight decay
  Diffusion = 21,            ///< weight diffusion
  Reset = 22,                ///< reset of cells to their reset value
  Drift = 23,                ///< drift exponents and drift noise
  TransferRead = 24,         ///< noise of the read that feeds a transfer
  WeightInit = 25,           ///< initial weights of a layer
  UserDraw = 26,             ///< draws a user asks for
  WeightModifier = 27,       ///< noise put on weights for one mini-batch of hardware-aware training
  Program = 28,              ///< error of programming a weight for inference
  ChopperSwitch = 29,        ///< random switching of choppers
  TransferSelect = 30,       ///< random choice of the column or row to transfer
  CycleNoiseBatch = 31,      ///< cycle-to-cycle noise, one normal per cell and update
  ArraySelect = 32,          ///< random choice of the array that takes the pulses of a sample
  Dropout = 33,              ///< units that a forecaster drops
  PulseRound = 34,           ///< rounding of a number of pulses that is not whole
};

constexpr uint64_t kMaxElement = (uint64_t{1} << 48) - 1;
constexpr uint64_t kMaxSample = (uint64_t{1} << 48) - 1;
constexpr uint32_t kMaxIndex = (uint32_t{1} << 24) - 1;

/// The keys of Philox's ten rounds, precomputed for loops in which computing them would cost time.
struct RoundKeys {
  RandomKey round[10];
};

/// The key of one round.
PULSORA_HD RandomKey roundKey(RandomKey key, uint32_t round) {
  return {key.k0 + round * 0x9E3779B9U, key.k1 + round * 0xBB67AE85U};
}
PULSORA_HD RandomKey roundKey(const RoundKeys &keys, uint32_t round) { return keys.round[round]; }

PULSORA_HD RoundKeys roundKeys(RandomKey key) {
  RoundKeys keys{};
  for (uint32_t round = 0; round < 10; ++round) keys.round[round] = roundKey(key, round);
  return keys;
}

/// Rounds `first` to 9 of Philox4x32-10. Key is a RandomKey or its RoundKeys.
template <class Key = RandomKey>
PULSORA_HD Philox4 philoxRounds(Philox4 counter, const Key &key, uint32_t first) {
  uint32_t c0 = counter.v[0];
  uint32_t c1 = counter.v[1];
  uint32_t c2 = counter.v[2];
  uint32_t c3 = counter.v[3];
  for (uint32_t round = first; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t product2 = uint64_t{0xCD9E8D57U} * c2;
#if PULSORA_DEVICE_CODE
    const auto low0 = static_cast<uint32_t>(product0);
    const auto low2 = static_cast<uint32_t>(product2);
#else
    // Separate halves: from one 64-bit product gcc makes a tenth more vector instructions.
    const uint32_t low0 = 0xD2511F53U * c0;
    const uint32_t low2 = 0xCD9E8D57U * c2;
#endif
    const RandomKey keys = roundKey(key, round);
    c0 = static_cast<uint32_t>(product2 >> 32) ^ c1 ^ keys.k0;
    c1 = low2;
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ keys.k1;
    c3 = low0;
  }
  return {{c0, c1, c2, c3}};
}

/// The Philox4x32-10 bijection. Key is a RandomKey or its RoundKeys.
template <class Key = RandomKey>
PULSORA_HD Philox4 philox4x32_10(Philox4 counter, const Key &key) {
  return philoxRounds(counter, key, 0);
}

/// Place of a draw in counter space; injective over the ranges stated in the contract above.
PULSORA_HD Philox4 makeCounter(Purpose purpose, uint64_t element, uint64_t sample, uint32_t index) {
  PULSORA_ASSERT(static_cast<uint32_t>(purpose) < 256U && element <= kMaxElement &&
                 sample <= kMaxSample && index <= kMaxIndex);
  return {{static_cast<uint32_t>(element), static_cast<uint32_t>(sample),
           static_cast<uint32_t>(purpose) << 24 | index,
           static_cast<uint32_t>(element >> 32) << 16 | static_cast<uint32_t>(sample >> 32)}};
}

/// Four random words for (element, sample, index) of one array and purpose. Ranges: see the
/// contract. Key is a RandomKey or its RoundKeys.
template <class Key = RandomKey>
PULSORA_HD Philox4 draw(const Key &key, Purpose purpose, uint64_t element, uint64_t sample,
                        uint32_t index = 0) {
  return philox4x32_10(makeCounter(purpose, element, sample, index), key);
}

// A draw in two parts, for many draws of few elements and few samples: most of the first three
// rounds depends on the element alone or on the sample alone.

/// The element's part, for all samples that agree in bits 32 and up.
struct ElementRounds {
  uint32_t v[4];
};

/// The sample's part, for all elements.
struct SampleRounds {
  uint32_t v[2];
};

PULSORA_HD ElementRounds elementRounds(const RoundKeys &keys, Purpose purpose, uint64_t element,
                                       uint64_t sample, uint32_t index = 0) {
  const Philox4 c = makeCounter(purpose, element, sample, index);
  const uint64_t product0 = uint64_t{0xD2511F53U} * c.v[0];
  const auto c2 = static_cast<uint32_t>(product0 >> 32) ^ c.v[3] ^ keys.round[0].k1;
  const uint64_t product1 = uint64_t{0xCD9E8D57U} * c2;
  const auto c0 = static_cast<uint32_t>(product1 >> 32) ^ 0xCD9E8D57U * c.v[2] ^ keys.round[1].k0;
  const uint64_t product2 = uint64_t{0xD2511F53U} * c0;
  return {{static_cast<uint32_t>(product0), static_cast<uint32_t>(product1) ^ keys.round[2].k0,
           static_cast<uint32_t>(product2 >> 32) ^ keys.round[2].k1,
           static_cast<uint32_t>(product2)}};
}

PULSORA_HD SampleRounds sampleRounds(const RoundKeys &keys, Purpose purpose, uint64_t sample,
                                     uint32_t index = 0) {
  const Philox4 c = makeCounter(purpose, 0, sample, index);
  const auto c0 =
      static_cast<uint32_t>(uint64_t{0xCD9E8D57U} * c.v[2] >> 32) ^ c.v[1] ^ keys.round[0].k0;
  const uint64_t product = uint64_t{0xD2511F53U} * c0;
  return {
      {static_cast<uint32_t>(product >> 32) ^ keys.round[1].k1, static_cast<uint32_t>(product)}};
}

/// draw() from the parts of an element and of a sample.
PULSORA_HD Philox4 joinRounds(const RoundKeys &keys, const ElementRounds &e,
                              const SampleRounds &s) {
  const uint64_t product = uint64_t{0xCD9E8D57U} * (e.v[0] ^ s.v[0]);
  return philoxRounds({{static_cast<uint32_t>(product >> 32) ^ e.v[1],
                        static_cast<uint32_t>(product), e.v[2] ^ s.v[1], e.v[3]}},
                      keys, 3);
}

/// Bijective mixing of 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014;
/// constants by Stafford).
PULSORA_HD uint64_t mixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// Key of the random numbers of one array of one tile. With one seed, different (tile, array) never
/// share a key, nor do different seeds for one (tile, array): each is a bijection of 64 bits. If
/// both differ, two keys agree with probability 2^-64.
PULSORA_HD RandomKey makeKey(uint64_t seed, uint32_t tile, uint32_t array) {
  const uint64_t place = uint64_t{tile} << 32 | array;
  const uint64_t key = mixBits(mixBits(seed + 0x9E3779B97F4A7C15U) ^ place);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

/// Key of part number `part` of the object that `key` belongs to: `key` itself for part 0. Parts of
/// one key never share a key; parts of two keys do with probability 2^-64.
PULSORA_HD RandomKey partKey(RandomKey key, uint32_t part) {
  return part == 0 ? key : makeKey(uint64_t{key.k1} << 32 | key.k0, part, 0);
}

/// Uniform in [0, 1), a multiple of 2^-24.
PULSORA_HD float uniform(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
}

/// Uniform in (0, 1): an odd multiple of 2^-24. For models that take its logarithm or divide by it.
PULSORA_HD float uniformOpen(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8 | 1U)) * 0x1p-24F;
}

/// Two independent standard normals.
struct NormalPair {
  float z0;
  float z1;
};

/// Two normals from 64 bits by Box and Muller (1958), to float precision, abs(z) <= 6.77. For draws
/// that are made once: cells, re-initialisation, resets.
PULSORA_HD NormalPair normalPair(uint32_t radius, uint32_t angle) {
  const float u = fma(static_cast<float>(radius), 0x1p-32F, 0x1p-33F);
  const float r = sqrt(-2.0F * log(u));
  float sine;
  float cosine;
  sinCosTurns(static_cast<float>(static_cast<int32_t>(angle)) * 0x1p-32F, &sine, &cosine);
  return {r * cosine, r * sine};
}

/// Two independent standard normals from 32 bits: Box and Muller with 16 bits of radius and 16 of
/// angle. The inner loop of the simulator, so instructions count; per normal they are 12.5 with
/// AVX-512, 14 with AVX2 (gcc 12, vectorised, without moves) and 15 on sm_90 (nvcc 13).
///
/// Over all 2^32 words: mean and odd moments exactly 0 (the values are symmetric), variance 1 -
/// 2e-8 and 1 - 8e-8, kurtosis 3 - 1.4e-6 and 3 + 4e-8, E[z0^2 z1^2] = 1 + 9e-7, sixth
/// moment 14.995, 0.0039 < radius < 4.855. The radius is within 1.6e-4 of sqrt(-2 ln u) at the
/// midpoints u, on purpose: a slope of 3.1e-4 per octave of u gives back the kurtosis that the
/// missing tail takes.
PULSORA_HD NormalPair normalPair16(uint32_t word) {
  // u = (k + 1/2) / 2^16 with k the low 16 bits, held as 2^-109 u: exponent field 18 is u = 1. As
  // an integer, the bits of u are 2^23 (exponent + m - 1), linear between octaves; the polynomial
  // of the mantissa m in [1, 2) adds the rest of -2 ln u. The field is small and the low 7 bits of
  // u are zero, so that the conversion to float loses nothing.
#if PULSORA_DEVICE_CODE
  const uint32_t field = __byte_perm(word, 0x0C80U, 0x5410U);  // as below, in one instruction
#else
  const uint32_t field = (word & 0xFFFFU) | 0x0C800000U;
#endif
  const float u = bitCast<float>(field) - 0x1.fffffep-103F;
  const uint32_t bits = bitCast<uint32_t>(u);
  const float m = bitCast<float>(bits | 0x3F800000U);  // a field below 32 vanishes in 127
  const float rest = polynomial(m, 0x1.b653b4p+4F, -0x1.5e95ep+2F, 0x1.29b956p+2F, -0x1.09a814p+1F,
                                0x1.0774bp-1F, -0x1.b8c24cp-5F);
  const float r =
      sqrtOfNormal(fma(static_cast<float>(static_cast<int32_t>(bits)), -0x1.62eadep-23F, rest));
  // Half a turn h in (-1/2, 1/2) from bits 16 to 30, with the bits below set and the excess over
  // 1/2 taken off again; bit 31 falls into the exponent's ones and mirrors the cosine onto the
  // other half in the end.
  const float h = bitCast<float>((word >> 8) | 0x3F8000FFU) - 0x1.8000fep0F;
  const float y = h * h;
  // cos(pi h) and sin(pi h) / h on y in [0, 1/4], scaled to unit variance: absolute error 6.9e-6
  // and 8.1e-7.
  const float cosine =
      polynomial(y, 0x1.ffff2p-1F, -0x1.3bc5a4p+2F, 0x1.02a466p+2F, -0x1.38dd52p+0F);
  const float sine =
      h * polynomial(y, 0x1.921f6ep+1F, -0x1.4ab36ep+2F, 0x1.456ac4p+1F, -0x1.1c6f1ep-1F);
  return {bitCast<float>(bitCast<uint32_t>(r * cosine) ^ (word & 0x80000000U)), r * sine};
}

/// Normals of eight consecutive samples of one element.
struct Normal8 {
  float z[8];
};

/// The eight normals of one block: samples 8 b ... 8 b + 7 for the block drawn at sample b.
PULSORA_HD Normal8 normal8(Philox4 block) {
  const NormalPair a = normalPair16(block.v[0]);
  const NormalPair b = normalPair16(block.v[1]);
  const NormalPair c = normalPair16(block.v[2]);
  const NormalPair d = normalPair16(block.v[3]);
  return {{a.z0, a.z1, b.z0, b.z1, c.z0, c.z1, d.z0, d.z1}};
}

/// The normal of one sample, by its place in the block of eight (further bits are not read).
PULSORA_HD float normalOf(const Philox4 &block, uint32_t sample) {
  const NormalPair pair = normalPair16(wordOf(block, sample >> 1));
  return (sample & 1U) != 0 ? pair.z1 : pair.z0;
}

/// The normal of one sample of one element: normal8(draw(key, purpose, element, sample /
/// 8)).z[sample % 8]. sample < 2^51.
template <class Key = RandomKey>
PULSORA_HD float normalOfSample(const Key &key, Purpose purpose, uint64_t element, uint64_t sample,
                                uint32_t index = 0) {
  return normalOf(draw(key, purpose, element, sample >> 3, index), static_cast<uint32_t>(sample));
}

}  // namespace pulsora
