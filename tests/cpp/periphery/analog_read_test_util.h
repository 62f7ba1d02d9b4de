#pragma once

#include <cstring>
#include <vector>

#include "periphery/analog_read.h"

// Shared code of the tests of analog reads: small matrices, and a read in one call.

namespace pulsora::testing {

using Vector = std::vector<float>;

struct Matrix {
  int64_t rows = 0, cols = 0;
  Vector values;

  Matrix() = default;
  Matrix(int64_t rows_, int64_t cols_, float value = 0.0f)
      : rows(rows_), cols(cols_), values(static_cast<size_t>(rows_ * cols_), value) {}
  /// Uniform in [-range, range].
  static Matrix random(int64_t rows, int64_t cols, float range, uint32_t stream) {
    Matrix m(rows, cols);
    for (size_t i = 0; i < m.values.size(); ++i) {
      const Philox4 r = draw(makeKey(99, stream, 0), Purpose::UserDraw, i, 0);
      m.values[i] = range * (2.0f * uniform(r.v[0]) - 1.0f);
    }
    return m;
  }
  MatrixView<float> view() { return rowMajor(values.data(), rows, cols); }
  MatrixView<const float> view() const { return rowMajor(values.data(), rows, cols); }
  float operator()(int64_t i, int64_t j) const { return view()(i, j); }
};

inline bool sameBits(const Matrix &a, const Matrix &b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

inline Context contextOf(Isa isa, int threads) {
  Context context;
  context.cpu.isa = isa;
  context.cpu.threads = threads;
  return context;
}

const RandomKey kKey = makeKey(3, 1, 4);

inline AnalogRead readOf(const IOParameters &p, const Matrix &w, Pass pass = Pass::Forward) {
  return AnalogRead(Context{}, p, pass, w.cols, w.rows, kKey);
}

inline Matrix readAll(const IOParameters &p, const Matrix &w, const Matrix &x,
                      const Context &context = {}, Pass pass = Pass::Forward,
                      uint64_t firstSample = 0) {
  Matrix y(x.rows, w.rows);
  readOf(p, w, pass).run(context, w.view(), x.view(), y.view(), firstSample);
  return y;
}

/// Parameters without converters and noise; tests switch on what they need.
inline IOParameters plain() {
  IOParameters p;
  p.inp_bound = p.inp_res = p.out_bound = p.out_res = p.out_noise = 0.0f;
  p.noise_management = NoiseManagement::None;
  p.bound_management = BoundManagement::None;
  return p;
}

}  // namespace pulsora::testing
