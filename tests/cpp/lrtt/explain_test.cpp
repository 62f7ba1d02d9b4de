#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

constexpr int64_t kOut = 24, kIn = 20, kRows = 4, kRepeats = 400;

IOParameters scaledIo() {
  IOParameters io = noisyIo(0.1f);
  io.noise_management = NoiseManagement::AbsMax;
  return io;
}

LrttRig noisyRig(bool swap) {
  LrttRig rig(kOut, kIn, 3);
  rig.params.swap_xd = swap;
  rig.params.lora_alpha = 1.5f;
  rig.forwardIo = rig.backwardIo = scaledIo();
  rig.build();
  const Mat a = randomMat(swap ? kIn : kOut, 3, 0.4f, 2),
            b = randomMat(3, swap ? kOut : kIn, 0.3f, 3);
  rig.setFactors(a, b);
  return rig;
}

// Mean over the rows of `in` of the variance of a read of each, in units of that of a read of one
// array of the same shape with scale `scale`.
double relativeVariance(LrttRig &rig, bool forward, const Mat &in) {
  Mat many(kRows * kRepeats, in.cols);
  for (int64_t i = 0; i < many.rows; ++i) {
    for (int64_t j = 0; j < in.cols; ++j) many(i, j) = in(i % kRows, j);
  }
  const Mat got = forward ? rig.forward(many) : rig.backward(many);
  const Mat w = rig.effective();
  double sum = 0.0;
  for (int64_t row = 0; row < kRows; ++row) {
    double scale = 0.0;
    for (int64_t j = 0; j < in.cols; ++j) scale = std::max(scale, std::fabs(double(in(row, j))));
    const double plain = 0.1 * 0.1 * scale * scale;
    for (int64_t line = 0; line < got.cols; ++line) {
      double exact = 0.0;
      for (int64_t j = 0; j < in.cols; ++j)
        exact += double(in(row, j)) * double(forward ? w(line, j) : w(j, line));
      for (int64_t i = row; i < got.rows; i += kRows)
        sum += (double(got(i, line)) - exact) * (double(got(i, line)) - exact) / plain;
    }
  }
  return sum / double(got.v.size());
}

// 1 + adapter_noise^2 is what a read of the tile has of the variance of a read of W. About 40000
// values, so a relative deviation of 0.7 %; those of one row and repeat share the noise of three
// inner lines, which makes it larger: 2 % for 1600 x 3 of these. 5 sigma.
TEST(LrttExplain, StatesTheNoiseOfTheAdapter) {
  for (const bool swap : {false, true}) {
    LrttRig rig = noisyRig(swap);
    const Mat in = randomMat(kRows, kIn, 1.0f, 4), grad = randomMat(kRows, kOut, 1.0f, 5);
    const Value::Map told = rig.device->explain(rig.context, in.view(), grad.view(), 0.1f);
    const double forward = *told.at("adapter_noise").real();
    const double backward = *told.at("adapter_noise_backward").real();
    EXPECT_GT(forward, 0.5);
    EXPECT_NEAR(relativeVariance(rig, true, in) / (1.0 + forward * forward), 1.0, 0.1) << swap;
    EXPECT_NEAR(relativeVariance(rig, false, grad) / (1.0 + backward * backward), 1.0, 0.1) << swap;
  }
}

TEST(LrttExplain, AnAdapterBehindTheSameConverterAddsNoNoise) {
  for (const bool injected : {true, false}) {
    LrttRig rig(kOut, kIn, 3);
    rig.params.forward_inject = injected;
    if (injected) rig.params.inject_io = InjectIo::Shared;
    rig.forwardIo = rig.backwardIo = scaledIo();
    rig.build();
    rig.setFactors(randomMat(kOut, 3, 1.0f, 2), randomMat(3, kIn, 1.0f, 3));
    const Mat in = randomMat(kRows, kIn, 1.0f, 4), grad = randomMat(kRows, kOut, 1.0f, 5);
    const Value::Map told = rig.device->explain(rig.context, in.view(), grad.view(), 0.1f);
    EXPECT_EQ(*told.at("adapter_noise").real(), 0.0);
    EXPECT_EQ(*told.at("adapter_noise_backward").real(), 0.0);
  }
}

// The texts begin with the largest loss, and name the setting that would help.
TEST(LrttExplain, NamesWhatLimitsInOrderOfImportance) {
  LrttRig rig(kOut, kIn, 3);
  rig.params.fast = idealCells(1e-3f);
  rig.params.lora_alpha = 20.0f;
  rig.update.desired_bl = 5;
  rig.forwardIo = rig.backwardIo = scaledIo();
  rig.build();
  const Mat in = randomMat(kRows, kIn, 1.0f, 4), grad = randomMat(kRows, kOut, 1.0f, 5);
  const auto warningsFor = [&](float lr) {
    std::vector<std::string> texts;
    const Value::Map told = rig.device->explain(rig.context, in.view(), grad.view(), lr);
    for (const Value &text : *told.at("warnings").list()) texts.push_back(*text.text());
    return texts;
  };
  rig.setFactors(randomMat(kOut, 3, 0.01f, 2), randomMat(3, kIn, 0.3f, 3));
  // A small step fits its trains, and alpha = 20 makes the noise of the read of A 20 times larger.
  std::vector<std::string> texts = warningsFor(1e-4f);
  ASSERT_FALSE(texts.empty());
  EXPECT_EQ(texts[0].find("forward: the adapter brings"), 0u) << texts[0];
  EXPECT_NE(texts[0].find("the read of A"), std::string::npos);
  EXPECT_NE(texts[0].find("smaller lora_alpha than 20"), std::string::npos);
  // The noise of the read of B passes through large elements of A; less than half of the noise is
  // of A.
  rig.setFactors(randomMat(kOut, 3, 5.0f, 2), randomMat(3, kIn, 0.3f, 3));
  texts = warningsFor(1e-4f);
  ASSERT_FALSE(texts.empty());
  EXPECT_NE(texts[0].find("the read of B"), std::string::npos) << texts[0];
  EXPECT_NE(texts[0].find("larger reinit_gain than 0.5"), std::string::npos);
  // With a quiet adapter, clipping comes first.
  rig.params.lora_alpha = 0.5f;
  rig.build();
  rig.setFactors(randomMat(kOut, 3, 0.5f, 2), randomMat(3, kIn, 0.3f, 3));
  texts = warningsFor(1.0f);
  ASSERT_FALSE(texts.empty());
  EXPECT_EQ(texts[0].find("update of "), 0u) << texts[0];
}

}  // namespace
}  // namespace pulsora
