#include "periphery/additive_reads.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "array/array_keys.h"
#include "lrtt/lrtt_test_util.h"
#include "numerics/math.h"

namespace pulsora {
namespace {

constexpr int64_t kOut = 9, kIn = 13, kSamples = 6;

// A low-rank pair of arrays with noisy reads.
struct Pair {
  Mat a, b;
  AnalogRead readA, readB;
  Mat inner;

  Pair(int64_t rank, uint32_t slot)
      : a(randomMat(kOut, rank, 0.4f, 10 + slot)),
        b(randomMat(rank, kIn, 0.4f, 20 + slot)),
        readA({}, noisyIo(0.05f), Pass::Forward, rank, kOut, TileKeys{3, 0}.of(slot, Role::Read)),
        readB({}, noisyIo(0.05f), Pass::Forward, kIn, rank,
              TileKeys{3, 0}.of(slot + 1, Role::Read)),
        inner(kSamples, rank) {}
};

TEST(AdditiveReads, AnyNumberOfChainsIsAddedInOrder) {
  const Mat w = randomMat(kOut, kIn, 0.3f, 1), in = randomMat(kSamples, kIn, 1.0f, 2);
  for (size_t count = 0; count <= 3; ++count) {
    AnalogRead base({}, noisyIo(0.1f), Pass::Forward, kIn, kOut, TileKeys{3, 0}.of(0, Role::Read));
    std::vector<std::unique_ptr<Pair>> pairs;
    std::vector<ChainedRead> chains;
    for (size_t k = 0; k < count; ++k) {
      pairs.push_back(std::make_unique<Pair>(int64_t(2 + k), uint32_t(1 + 2 * k)));
      Pair &p = *pairs.back();
      chains.push_back({{p.readB, p.b.view()},
                        {p.readA, p.a.view()},
                        p.inner.view(),
                        {},
                        {},
                        0.5f + static_cast<float>(k)});
    }
    ScratchBuffer<float> scratch;
    Mat out(kSamples, kOut);
    readTogether({}, {base, w.view()}, chains.data(), static_cast<int>(count), in.view(),
                 out.view(), 7, scratch);

    Mat expected(kSamples, kOut);
    base.run({}, w.view(), in.view(), expected.view(), 7);
    for (size_t k = 0; k < count; ++k) {
      Pair &p = *pairs[k];
      Mat inner(kSamples, p.b.rows), product(kSamples, kOut);
      p.readB.run({}, p.b.view(), in.view(), inner.view(), 7);
      EXPECT_TRUE(sameBits(inner, p.inner));
      p.readA.run({}, p.a.view(), inner.view(), product.view(), 7);
      for (size_t i = 0; i < expected.v.size(); ++i)
        expected.v[i] = fma(chains[k].factor, product.v[i], expected.v[i]);
    }
    EXPECT_TRUE(sameBits(out, expected)) << count << " chains";
  }
}

TEST(AdditiveReads, AGateWeighsTheComponentsOfItsChain) {
  const Mat w = randomMat(kOut, kIn, 0.3f, 1), in = randomMat(kSamples, kIn, 1.0f, 2);
  AnalogRead base({}, perfectIo(), Pass::Forward, kIn, kOut, TileKeys{3, 0}.of(0, Role::Read));
  Pair p(3, 1);
  const Mat gate = randomMat(kSamples, 3, 1.0f, 5);
  Mat ungated(kSamples, 3);
  const ChainedRead chain{{p.readB, p.b.view()}, {p.readA, p.a.view()}, p.inner.view(),
                          gate.view(),           ungated.view(),        2.0f};
  ScratchBuffer<float> scratch;
  Mat out(kSamples, kOut);
  readTogether({}, {base, w.view()}, &chain, 1, in.view(), out.view(), 0, scratch);
  Mat inner(kSamples, 3), product(kSamples, kOut), expected(kSamples, kOut);
  p.readB.run({}, p.b.view(), in.view(), inner.view(), 0);
  EXPECT_TRUE(sameBits(inner, ungated));
  for (size_t i = 0; i < inner.v.size(); ++i) inner.v[i] *= gate.v[i];
  p.readA.run({}, p.a.view(), inner.view(), product.view(), 0);
  base.run({}, w.view(), in.view(), expected.view(), 0);
  for (size_t i = 0; i < expected.v.size(); ++i)
    expected.v[i] = fma(2.0f, product.v[i], expected.v[i]);
  EXPECT_TRUE(sameBits(out, expected));
}

TEST(AdditiveReads, Property37_DoNotDependOnThreads) {
  constexpr int64_t kMany = 300;
  const Mat w = randomMat(kOut, kIn, 0.3f, 1), in = randomMat(kMany, kIn, 1.0f, 2);
  const Mat gate = randomMat(kMany, 3, 1.0f, 5);
  const auto read = [&](int threads, bool perfectBase) {
    Context context;
    context.cpu.threads = threads;
    AnalogRead base({}, perfectBase ? perfectIo() : noisyIo(0.1f), Pass::Forward, kIn, kOut,
                    TileKeys{3, 0}.of(0, Role::Read));
    Pair p(3, 1);
    Mat inner(kMany, 3), ungated(kMany, 3), out(kMany, kOut);
    const ChainedRead chain{{p.readB, p.b.view()}, {p.readA, p.a.view()}, inner.view(),
                            gate.view(),           ungated.view(),        2.0f};
    ScratchBuffer<float> scratch;
    readTogether(context, {base, w.view()}, &chain, 1, in.view(), out.view(), 5, scratch);
    return std::vector<Mat>{out, inner, ungated};
  };
  for (bool perfectBase : {false, true}) {
    const std::vector<Mat> expected = read(1, perfectBase);
    for (int threads : {2, 3, 7}) {
      const std::vector<Mat> found = read(threads, perfectBase);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(sameBits(found[i], expected[i])) << threads << " threads, result " << i;
    }
  }
}

TEST(AdditiveReads, NoSamplesChangeNothing) {
  const Mat w = randomMat(kOut, kIn, 0.3f, 1);
  AnalogRead base({}, noisyIo(0.1f), Pass::Forward, kIn, kOut, TileKeys{3, 0}.of(0, Role::Read));
  ScratchBuffer<float> scratch;
  const Mat in(0, kIn);
  Mat out(0, kOut);
  readTogether({}, {base, w.view()}, nullptr, 0, in.view(), out.view(), 0, scratch);
}

}  // namespace
}  // namespace pulsora
