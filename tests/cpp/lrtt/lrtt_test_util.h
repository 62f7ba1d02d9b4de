#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "devices/constant_step.h"
#include "devices/soft_bounds.h"
#include "lrtt/lrtt_transfer_device.h"
#include "numerics/random.h"
#include "util/plain_lrtt.h"

namespace pulsora {

/// A small row-major matrix for tests.
struct Mat {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> v;

  Mat() = default;
  Mat(int64_t rows_, int64_t cols_, float value = 0.0f)
      : rows(rows_), cols(cols_), v(static_cast<size_t>(rows_ * cols_), value) {}
  explicit Mat(MatrixView<const float> from) : Mat(from.rows, from.cols) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) (*this)(i, j) = from(i, j);
    }
  }
  float &operator()(int64_t i, int64_t j) { return v[static_cast<size_t>(i * cols + j)]; }
  float operator()(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * cols + j)]; }
  MatrixView<float> view() { return rowMajor(v.data(), rows, cols); }
  MatrixView<const float> view() const { return rowMajor<const float>(v.data(), rows, cols); }
  MatrixView<const float> rowsFrom(int64_t start, int64_t count) const {
    return view().block(start, 0, count, cols);
  }
};

inline bool sameBits(const Mat &a, const Mat &b) {
  return a.v.size() == b.v.size() &&
         std::memcmp(a.v.data(), b.v.data(), a.v.size() * sizeof(float)) == 0;
}

/// Independent normals times `scale`.
inline Mat randomMat(int64_t rows, int64_t cols, float scale, uint64_t seed) {
  Mat m(rows, cols);
  const RandomKey key = makeKey(seed, 0, 77);
  for (size_t i = 0; i < m.v.size(); ++i) {
    const Philox4 block = draw(key, Purpose::UserDraw, i, 0);
    m.v[i] = scale * normalPair(block.v[0], block.v[1]).z0;
  }
  return m;
}

/// Equal cells with steps of exactly dw_min and bounds far away.
inline ConstantStep::Params idealCells(float dwMin) {
  ConstantStep::Params p;
  p.dw_min = dwMin;
  p.dw_min_dtod = p.dw_min_std = p.w_max_dtod = p.w_min_dtod = p.up_down_dtod = 0.0f;
  p.w_max = 100.0f;
  p.w_min = -100.0f;
  return p;
}

/// Cells with every spread, and steps that depend on the weight.
inline SoftBounds::Params noisyCells(float dwMin) {
  SoftBounds::Params p;
  p.dw_min = dwMin;
  return p;
}

inline IOParameters perfectIo() {
  IOParameters io;
  io.is_perfect = true;
  return io;
}

/// A periphery with output noise and no other effect.
inline IOParameters noisyIo(float outNoise) {
  IOParameters io;
  io.inp_bound = io.inp_res = io.out_bound = io.out_res = 0.0f;
  io.out_noise = outNoise;
  io.noise_management = NoiseManagement::None;
  io.bound_management = BoundManagement::None;
  return io;
}

/// A device with the counters that a tile would keep.
class LrttRig {
 public:
  LRTTParams params = plainLrtt();
  UpdateParameters update;
  IOParameters forwardIo = perfectIo();
  IOParameters backwardIo = perfectIo();
  int64_t d, x;
  uint64_t seed = 1;
  Context context;
  Counters counters;
  std::unique_ptr<LRTTTransferDevice> device;

  LrttRig(int64_t d_, int64_t x_, int rank) : d(d_), x(x_) {
    params.rank = rank;
    params.visible = idealCells(1e-4f);
    params.fast = idealCells(1e-4f);
    params.transfer_every = 0;
  }
  LrttRig &build() {
    counters = Counters{};
    const TilePeriphery around{forwardIo, backwardIo, update};
    device = std::make_unique<LRTTTransferDevice>(
        params, CompoundSite{context, d, x, around, TileKeys{seed, 0}});
    return *this;
  }
  void setFactors(const Mat &a, const Mat &b) {
    LRTTAdapter &adapter = device->factors();
    adapter.setWeights(context, adapter.arrayA(), a.view());
    adapter.setWeights(context, adapter.arrayB(), b.view());
  }
  void setW(const Mat &w) {
    device->writeArray(context, "visible", w.view(), counters);
    ++counters.events;
  }
  Mat w() const { return Mat(device->visible().weights()); }
  Mat a() const { return Mat(device->factors().a().weights()); }
  Mat b() const { return Mat(device->factors().b().weights()); }
  Mat effective() const {
    Mat m(d, x);
    device->getWeights(context, m.view());
    return m;
  }
  Mat forward(const Mat &in) {
    Mat out(in.rows, d);
    device->forward(context, in.view(), out.view(), counters);
    counters.forwardSamples += static_cast<uint64_t>(in.rows);
    return out;
  }
  Mat backward(const Mat &in) {
    Mat out(in.rows, x);
    device->backward(context, in.view(), out.view(), counters);
    counters.backwardSamples += static_cast<uint64_t>(in.rows);
    return out;
  }
  void learn(MatrixView<const float> in, MatrixView<const float> grad, float lr) {
    device->update(context, in, grad, lr, counters);
    counters.updateSamples += static_cast<uint64_t>(in.rows);
  }
  void learn(const Mat &in, const Mat &grad, float lr) { learn(in.view(), grad.view(), lr); }
  void endMiniBatch() {
    device->postUpdate(context, 0.1f, counters);
    ++counters.miniBatches;
  }
  uint64_t transfers() const { return device->transfers().count(); }
  TransferStats latest() const { return device->transfers().latest(context); }
};

/// A B in double precision.
inline std::vector<double> product(const Mat &a, const Mat &b) {
  std::vector<double> out(static_cast<size_t>(a.rows * b.cols));
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t j = 0; j < b.cols; ++j) {
        out[static_cast<size_t>(i * b.cols + j)] += double(a(i, k)) * double(b(k, j));
      }
    }
  }
  return out;
}

}  // namespace pulsora
