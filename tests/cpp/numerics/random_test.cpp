#include "numerics/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <tuple>
#include <vector>

#include "util/fnv_hash.h"

namespace {

using pulsora::Philox4;
using pulsora::Purpose;
using pulsora::RandomKey;

constexpr RandomKey kKey = {0x1234567U, 0x89ABCDEFU};

std::array<uint32_t, 4> words(const Philox4 &block) {
  return {block.v[0], block.v[1], block.v[2], block.v[3]};
}

double normalCdf(double z) { return 0.5 * std::erfc(-z * M_SQRT1_2); }

// sqrt(n) times the Kolmogorov-Smirnov distance; above 3.0 with a chance of 3e-8, a little over 5
// sigma.
template <class Cdf>
double ksStatistic(std::vector<float> sample, Cdf cdf) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double distance = 0.0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double p = cdf(static_cast<double>(sample[i]));
    distance =
        std::max({distance, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  return distance * std::sqrt(n);
}

double correlation(const std::vector<float> &a, const std::vector<float> &b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum / static_cast<double>(a.size());
}

TEST(Random, Property39_PhiloxKnownAnswers) {  // from Random123 1.14, kat_vectors
  EXPECT_EQ(words(pulsora::philox4x32_10({{0, 0, 0, 0}}, {0, 0})),
            (std::array<uint32_t, 4>{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}));
  const uint32_t ones = 0xFFFFFFFFU;
  EXPECT_EQ(words(pulsora::philox4x32_10({{ones, ones, ones, ones}}, {ones, ones})),
            (std::array<uint32_t, 4>{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU}));
  EXPECT_EQ(words(pulsora::philox4x32_10({{0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}},
                                         {0xA4093822U, 0x299F31D0U})),
            (std::array<uint32_t, 4>{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U}));
}

// The layout is injective because every coordinate can be read back, over the whole of its range:
// Philox being a bijection, two different draws of one array never see the same block.
TEST(Random, Property39_CountersCanBeReadBack) {
  const std::vector<uint64_t> wide = {
      0, 1, 0xFFFFFFFFU, 0x100000000U, 0x8000DEADBEEFU, pulsora::kMaxSample};
  const std::vector<uint32_t> indices = {0, 1, 0xABCDEFU, pulsora::kMaxIndex};
  for (const uint32_t purpose : {0U, 1U, 30U, 255U}) {
    for (const uint64_t element : wide) {
      for (const uint64_t sample : wide) {
        for (const uint32_t index : indices) {
          const Philox4 c =
              pulsora::makeCounter(static_cast<Purpose>(purpose), element, sample, index);
          EXPECT_EQ(c.v[2] >> 24, purpose);
          EXPECT_EQ(c.v[2] & 0xFFFFFFU, index);
          EXPECT_EQ(uint64_t{c.v[3] >> 16} << 32 | c.v[0], element);
          EXPECT_EQ(uint64_t{c.v[3] & 0xFFFFU} << 32 | c.v[1], sample);
        }
      }
    }
  }
}

TEST(Random, Property39_NoTwoCoordinatesShareACounter) {
  std::set<std::array<uint32_t, 4>> seen;
  size_t count = 0;
  for (uint32_t purpose = 0; purpose <= static_cast<uint32_t>(Purpose::TransferSelect); ++purpose) {
    for (uint64_t element = 0; element < 12; ++element) {
      for (uint64_t sample = 0; sample < 12; ++sample) {
        for (uint32_t index = 0; index < 4; ++index, ++count) {
          // Neighbours in the low and in the high parts.
          seen.insert(words(pulsora::makeCounter(static_cast<Purpose>(purpose),
                                                 element % 4 + (element / 4 << 32),
                                                 sample % 4 + (sample / 4 << 32), index)));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Random, Property39_KeysAreDistinct) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (uint32_t tile = 0; tile < 40; ++tile) {
      for (uint32_t array = 0; array < 40; ++array, ++count) {
        const RandomKey key = pulsora::makeKey(seed, tile, array);
        seen.insert({key.k0, key.k1});
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Random, KeysAreWellMixed) {
  // Flipping one bit of the input flips each key bit with chance 1/2: 128 inputs x 200 bases, 5
  // sigma over 64 bits each.
  double flips = 0.0;
  constexpr int kBases = 200;
  for (uint32_t base = 0; base < kBases; ++base) {
    const uint64_t seed = pulsora::mixBits(base);
    const RandomKey key = pulsora::makeKey(seed, base, base * 3U);
    for (uint32_t bit = 0; bit < 128; ++bit) {
      const RandomKey other =
          pulsora::makeKey(bit < 64 ? seed ^ (uint64_t{1} << bit) : seed,
                           bit >= 64 && bit < 96 ? base ^ (1U << (bit - 64)) : base,
                           bit >= 96 ? (base * 3U) ^ (1U << (bit - 96)) : base * 3U);
      flips += pulsora::popcount(key.k0 ^ other.k0) + pulsora::popcount(key.k1 ^ other.k1);
    }
  }
  const double bits = 64.0 * 128.0 * kBases;
  EXPECT_NEAR(flips, bits / 2.0, 5.0 * std::sqrt(bits) / 2.0);
}

#if !defined(NDEBUG)
TEST(RandomDeathTest, Property39_RangesAreAsserted) {
  EXPECT_DEATH(pulsora::makeCounter(Purpose::XPulse, pulsora::kMaxElement + 1, 0, 0), "");
  EXPECT_DEATH(pulsora::makeCounter(Purpose::XPulse, 0, pulsora::kMaxSample + 1, 0), "");
  EXPECT_DEATH(pulsora::makeCounter(Purpose::XPulse, 0, 0, pulsora::kMaxIndex + 1), "");
}
#endif

TEST(Random, UniformRanges) {
  EXPECT_EQ(pulsora::uniform(0U), 0.0F);
  EXPECT_EQ(pulsora::uniform(0xFFFFFFFFU), 0x1.fffffep-1F);
  EXPECT_EQ(pulsora::uniformOpen(0U), 0x1p-24F);
  EXPECT_EQ(pulsora::uniformOpen(0xFFFFFFFFU), 0x1.fffffep-1F);
}

// N = 4e5 words: chi square over 256 bins (mean 255, sd 22.6), KS, mean.
TEST(Random, UniformDistribution) {
  constexpr uint32_t kBlocks = 100000;
  std::vector<float> sample;
  std::vector<double> bins(256, 0.0);
  double sum = 0.0;
  for (uint32_t element = 0; element < kBlocks; ++element) {
    for (const uint32_t word : pulsora::draw(kKey, Purpose::UserDraw, element, 3).v) {
      const float u = pulsora::uniform(word);
      sample.push_back(u);
      bins[static_cast<size_t>(u * 256.0F)] += 1.0;
      sum += static_cast<double>(u);
    }
  }
  const auto n = static_cast<double>(sample.size());
  double chiSquare = 0.0;
  for (const double bin : bins) {
    chiSquare += (bin - n / 256.0) * (bin - n / 256.0) / (n / 256.0);
  }
  EXPECT_NEAR(chiSquare, 255.0, 5.0 * std::sqrt(2.0 * 255.0));
  EXPECT_NEAR(sum / n, 0.5, 5.0 * std::sqrt(1.0 / 12.0 / n));
  EXPECT_LT(ksStatistic(sample, [](double u) { return u; }), 3.0);
}

// N = 4e5 normals: first four moments at 5 sigma, KS, and zero correlation within the pair of
// values and of squares.
template <class Pair>
void checkNormals(Pair pair) {
  constexpr uint32_t kPairs = 200000;
  std::vector<float> sample;
  double moments[5] = {};
  double product = 0.0;
  double productOfSquares = 0.0;
  for (uint32_t i = 0; i < kPairs; ++i) {
    const pulsora::NormalPair z = pair(pulsora::draw(kKey, Purpose::Construct, i, 9));
    for (const float value : {z.z0, z.z1}) {
      sample.push_back(value);
      for (int power = 1; power <= 4; ++power) {
        moments[power] += std::pow(static_cast<double>(value), power);
      }
    }
    const double z0 = static_cast<double>(z.z0);
    const double z1 = static_cast<double>(z.z1);
    product += z0 * z1;
    productOfSquares += (z0 * z0 - 1.0) * (z1 * z1 - 1.0);
  }
  const double n = 2.0 * kPairs;
  EXPECT_NEAR(moments[1] / n, 0.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(moments[2] / n, 1.0, 5.0 * std::sqrt(2.0 / n));
  EXPECT_NEAR(moments[3] / n, 0.0, 5.0 * std::sqrt(15.0 / n));
  EXPECT_NEAR(moments[4] / n, 3.0, 5.0 * std::sqrt(96.0 / n));
  EXPECT_NEAR(product / kPairs, 0.0, 5.0 / std::sqrt(double{kPairs}));
  EXPECT_NEAR(productOfSquares / kPairs, 0.0, 5.0 * 2.0 / std::sqrt(double{kPairs}));
  EXPECT_LT(ksStatistic(sample, normalCdf), 3.0);
}

TEST(Random, NormalPairDistribution) {
  checkNormals([](const Philox4 &block) { return pulsora::normalPair(block.v[0], block.v[1]); });
}

TEST(Random, NormalPair16Distribution) {
  checkNormals([](const Philox4 &block) { return pulsora::normalPair16(block.v[2]); });
}

TEST(Random, NormalPairAgainstItsFormula) {
  for (uint32_t i = 0; i < 100000; ++i) {
    const uint32_t a = i * 42949U;
    const uint32_t b = i * 2654435761U;
    const pulsora::NormalPair z = pulsora::normalPair(a, b);
    const double r = std::sqrt(-2.0 * std::log((a + 0.5) / 4294967296.0));
    const double angle = 2.0 * M_PI * b / 4294967296.0;
    ASSERT_NEAR(z.z0, r * std::cos(angle), 1e-6 + 2e-7 / r) << a << " " << b;
    ASSERT_NEAR(z.z1, r * std::sin(angle), 1e-6 + 2e-7 / r) << a << " " << b;
  }
  EXPECT_NEAR(pulsora::normalPair(0U, 0U).z0, 6.7637, 1e-4);
  EXPECT_EQ(pulsora::normalPair(0xFFFFFFFFU, 0U).z0, 0.0F);
}

// The low half of the word is the radius, the high half the angle, so all 2^32 words are covered by
// all radii at one angle and all angles at one radius, up to the rounding of the product.
TEST(Random, NormalPair16OverAllWords) {
  constexpr uint32_t kCount = 65536;
  constexpr uint32_t kStraight = 0x40000000U;  // the angle closest to 0
  double radius[7] = {};
  double previous = 10.0;
  std::vector<double> radii;
  for (uint32_t k = 0; k < kCount; ++k) {
    const pulsora::NormalPair z = pulsora::normalPair16(kStraight | k);
    const double r = std::hypot(static_cast<double>(z.z0), static_cast<double>(z.z1));
    const double wanted = std::sqrt(-2.0 * std::log((k + 0.5) / kCount));
    ASSERT_LT(r, previous) << "the radius falls with k";
    ASSERT_GT(r, 0.0);
    ASSERT_NEAR(r, wanted, k + 64 < kCount ? 1.8e-4 : 3e-4) << k;
    previous = r;
    radii.push_back(r);
  }
  EXPECT_NEAR(radii.front(), 4.855, 0.001);
  for (const double r : radii) {
    for (int power = 2; power <= 6; power += 2) {
      radius[power] += std::pow(r, power) / kCount;
    }
  }
  constexpr uint32_t kRadius = 0x1234U;
  double cosines[7] = {};
  double sines[7] = {};
  for (uint32_t a = 0; a < kCount; ++a) {
    const pulsora::NormalPair z = pulsora::normalPair16(a << 16 | kRadius);
    const double h = M_PI * (((a & 0x7FFFU) + 0.5) / 32768.0 - 0.5);
    const double c = static_cast<double>(z.z0) / radii[kRadius];
    const double s = static_cast<double>(z.z1) / radii[kRadius];
    ASSERT_NEAR(c, a < 0x8000U ? std::cos(h) : -std::cos(h), 2e-5);
    ASSERT_NEAR(s, std::sin(h), 2e-5);
    for (int power = 1; power <= 6; ++power) {
      cosines[power] += std::pow(c, power) / kCount;
      sines[power] += std::pow(s, power) / kCount;
    }
    // Exact symmetry, hence odd moments of zero.
    const pulsora::NormalPair mirrored = pulsora::normalPair16((a ^ 0x7FFFU) << 16 | kRadius);
    ASSERT_EQ(mirrored.z0, z.z0);
    ASSERT_EQ(mirrored.z1, -z.z1);
    ASSERT_EQ(pulsora::normalPair16((a ^ 0x8000U) << 16 | kRadius).z0, -z.z0);
  }
  EXPECT_NEAR(radius[2] * cosines[2], 1.0, 1e-6);
  EXPECT_NEAR(radius[2] * sines[2], 1.0, 1e-6);
  EXPECT_NEAR(radius[4] * cosines[4], 3.0, 1e-5);
  EXPECT_NEAR(radius[4] * sines[4], 3.0, 1e-5);
  EXPECT_NEAR(radius[6] * cosines[6], 15.0, 0.006);
  EXPECT_NEAR(cosines[1], 0.0, 1e-12);
  EXPECT_NEAR(sines[3], 0.0, 1e-12);
}

TEST(Random, NormalOfSampleIsOneOfTheBlock) {
  for (uint64_t sample = 0; sample < 64; ++sample) {
    const pulsora::Normal8 block =
        pulsora::normal8(pulsora::draw(kKey, Purpose::CycleNoise, 77, sample / 8));
    EXPECT_EQ(pulsora::normalOfSample(kKey, Purpose::CycleNoise, 77, sample), block.z[sample % 8]);
  }
}

TEST(Random, JoinedRoundsAreTheDraw) {
  const pulsora::RoundKeys keys = pulsora::roundKeys(kKey);
  for (const uint64_t element : {uint64_t{0}, uint64_t{77}, pulsora::kMaxElement}) {
    for (const uint64_t sample : {uint64_t{3}, uint64_t{5} << 32 | 0xFFFFFFF0U}) {
      for (const uint32_t index : {0U, 9U}) {
        // The part of an element is that of all samples with the same upper bits.
        const pulsora::ElementRounds e =
            pulsora::elementRounds(keys, Purpose::CycleNoise, element, sample ^ 0x1234U, index);
        const pulsora::SampleRounds s =
            pulsora::sampleRounds(keys, Purpose::CycleNoise, sample, index);
        const Philox4 joined = pulsora::joinRounds(keys, e, s);
        const Philox4 drawn = pulsora::draw(kKey, Purpose::CycleNoise, element, sample, index);
        for (int word = 0; word < 4; ++word) EXPECT_EQ(joined.v[word], drawn.v[word]);
      }
    }
  }
}

// N = 1e5 pairs of normals from two streams that differ in one coordinate: correlation of values
// and of squares, 5 sigma.
TEST(Random, StreamsAreIndependent) {
  constexpr size_t kCount = 100000;
  const auto stream = [](RandomKey key, Purpose purpose, uint64_t element, uint64_t sample,
                         uint32_t index) {
    std::vector<float> z;
    z.reserve(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      z.push_back(pulsora::normalOfSample(key, purpose, element + 2 * i, sample, index));
    }
    return z;
  };
  const RandomKey key = pulsora::makeKey(1, 2, 3);
  const std::vector<float> base = stream(key, Purpose::CycleNoise, 0, 0, 0);
  const std::vector<std::vector<float>> others = {
      stream(key, Purpose::CyclePulse, 0, 0, 0),
      stream(key, Purpose::CycleNoise, 1, 0, 0),
      stream(key, Purpose::CycleNoise, 0, 1, 0),
      stream(key, Purpose::CycleNoise, 0, 2, 0),
      stream(key, Purpose::CycleNoise, 0, 8, 0),
      stream(key, Purpose::CycleNoise, 0, 0, 1),
      stream(pulsora::makeKey(2, 2, 3), Purpose::CycleNoise, 0, 0, 0),
      stream(pulsora::makeKey(1, 3, 3), Purpose::CycleNoise, 0, 0, 0),
      stream(pulsora::makeKey(1, 2, 4), Purpose::CycleNoise, 0, 0, 0)};
  const auto squares = [](std::vector<float> z) {
    for (float &value : z) {
      value = value * value - 1.0F;
    }
    return z;
  };
  for (size_t i = 0; i < others.size(); ++i) {
    const double sigma = 1.0 / std::sqrt(double{kCount});
    EXPECT_NEAR(correlation(base, others[i]), 0.0, 5.0 * sigma) << "stream " << i;
    EXPECT_NEAR(correlation(squares(base), squares(others[i])), 0.0, 5.0 * 2.0 * sigma)
        << "stream " << i;
  }
}

// 1e5 calls of each function: the same bits on every compiler, optimisation level and instruction
// set.
TEST(Random, GoldenBits) {
  FnvHash blocks;
  FnvHash uniforms;
  FnvHash normals;
  FnvHash fast;
  FnvHash keys;
  for (uint32_t i = 0; i < 100000; ++i) {
    const Philox4 block = pulsora::draw(kKey, Purpose::Reinit, uint64_t{i} << 16, i * 7U, i & 3U);
    for (const uint32_t word : block.v) {
      blocks.add(word);
    }
    uniforms.add(pulsora::uniform(block.v[0]));
    uniforms.add(pulsora::uniformOpen(block.v[1]));
    const pulsora::NormalPair slow = pulsora::normalPair(block.v[0], block.v[1]);
    normals.add(slow.z0);
    normals.add(slow.z1);
    for (const float z : pulsora::normal8(block).z) {
      fast.add(z);
    }
    const RandomKey key = pulsora::makeKey(i, i * 3U, i * 5U);
    keys.add(key.k0);
    keys.add(key.k1);
  }
  EXPECT_EQ(blocks.value(), 0x6430E540A2AAA997U);
  EXPECT_EQ(uniforms.value(), 0x2958A3B0DF08F9F1U);
  EXPECT_EQ(normals.value(), 0x82E17060C8AE31E2U);
  EXPECT_EQ(fast.value(), 0x9664DB2278C4F468U);
  EXPECT_EQ(keys.value(), 0xEE1514949082A7F8U);
}

}  // namespace
