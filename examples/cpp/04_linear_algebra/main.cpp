// The library's linear algebra alone: two digital low-rank adapters in one pair of matrices, and a
// step of gradient descent on the second. The same calls work on a GPU, with views of GPU memory.

#include <cmath>
#include <cstdio>
#include <pulsora/half.h>
#include <pulsora/linear_algebra.h>
#include <vector>

using namespace pulsora;

constexpr int64_t kOut = 6, kIn = 10, kRank = 2;

struct Matrix {
  std::vector<float> values;
  MatrixView<float> view;
  Matrix(int64_t rows, int64_t cols)
      : values(static_cast<size_t>(rows * cols)), view(rowMajor(values.data(), rows, cols)) {}
};

int main() {
  const Context context;  // one thread of the CPU
  const RandomKey key = makeKey(/*seed=*/1, /*tile=*/0, /*array=*/0);

  // A [kOut, 2 kRank] holds two factors side by side, B [2 kRank, kIn] two factors one above the
  // other. Only the second adapter's rows of B get values, for fan-in kIn.
  Matrix a(kOut, 2 * kRank), b(2 * kRank, kIn), a2(kOut, kRank), b2(kRank, kIn);
  setZero(context, a.view);
  setZero(context, b.view);
  kaimingRows(context, key, 0, kRank, 1.0f, b2.view);
  kaimingColumns(context, key, 1, kRank, 0.1f, a2.view);
  packColumns(context, a2.view, a.view, kRank);
  packRows(context, b2.view, b.view, kRank);

  // y = A (B x) for one sample, and the loss |y - target|^2 / 2.
  std::vector<float> x(kIn), inner(2 * kRank), y(kOut), error(2 * kRank);
  for (size_t j = 0; j < x.size(); ++j) x[j] = std::sin(static_cast<float>(j));
  const auto loss = [&] {
    gemv(context, 1.0f, b.view, vectorView(x.data(), kIn), 0.0f,
         vectorView(inner.data(), 2 * kRank));
    gemv(context, 1.0f, a.view, vectorView(inner.data(), 2 * kRank), 0.0f,
         vectorView(y.data(), kOut));
    float sum = 0.0f;
    for (float &value : y) value -= 0.5f, sum += 0.5f * value * value;  // y is now d = y - target
    return sum;
  };
  const float before = loss();
  // A <- 0.999 A - lr d (B x)^T and B <- B - lr (A^T d) x^T, with the old A.
  Matrix transposed(2 * kRank, kOut);
  transpose(context, a.view, transposed.view);
  gemv(context, 1.0f, transposed.view, vectorView(y.data(), kOut), 0.0f,
       vectorView(error.data(), 2 * kRank));
  scal(context, 0.999f, a.view);
  ger(context, -0.05f, vectorView(y.data(), kOut), vectorView(inner.data(), 2 * kRank), a.view);
  ger(context, -0.05f, vectorView(error.data(), 2 * kRank), vectorView(x.data(), kIn), b.view);
  const float after = loss();

  // The second adapter again, and a 16-bit copy of its B: rounding is at most 2^-11 of a value.
  unpackColumns(context, a.view, a2.view, kRank);
  unpackRows(context, b.view, b2.view, kRank);
  std::vector<Half> bits(static_cast<size_t>(kRank * kIn));
  elemcopy(context, b2.view, rowMajor(bits.data(), kRank, kIn));
  bool close = true;
  for (size_t i = 0; i < bits.size(); ++i) {
    const float rounding = std::fabs(halfToFloat(bits[i].bits) - b2.values[i]);
    close = close && rounding <= std::ldexp(std::fabs(b2.values[i]), -11) + 1e-7f;
  }
  std::printf("loss %.4f before the step, %.4f after; %s\n", static_cast<double>(before),
              static_cast<double>(after), close ? "16 bits hold the factor" : "16 bits do not");
  return close && after < before ? 0 : 1;
}
