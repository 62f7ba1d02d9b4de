#pragma once

#include <cstdint>
#include <vector>

#include "array/pulsed_device.h"
#include "core/buffer.h"
#include "core/context.h"
#include "core/view.h"

namespace pulsora {

/// Most arrays of a WeightedArrays.
constexpr int kMostWeighted = 9;

/// out(i, j) = sum over k, in order, of gammas[k] weights[k](i, j) for gapless weights; never -0.
/// With signs of lines, the first array counts with dSigns[i] xSigns[j].
struct WeightedSum {
  int count = 0;
  const float *weights[kMostWeighted] = {};
  float gammas[kMostWeighted] = {};
  const float *xSigns = nullptr;
  const float *dSigns = nullptr;
  MatrixView<float> out;

  PULSORA_HD static float added(float sum, float gamma, float weight) {
    return sum + gamma * weight;
  }
  PULSORA_HD void operator()(int64_t i) const {
    const int64_t row = i / out.cols;
    const int64_t col = i - row * out.cols;
    float sum = 0.0f;
    for (int k = 0; k < count; ++k) sum = added(sum, factor(k, row, col), weights[k][i]);
    out(row, col) = sum;
  }

 private:
  PULSORA_HD float factor(int k, int64_t row, int64_t col) const {
    return k == 0 && xSigns ? gammas[0] * (dSigns[row] * xSigns[col]) : gammas[k];
  }
};

/// The weight W = sum gamma_k W_k of arrays of one shape, as one matrix for reads. The sum is kept,
/// and made anew only after an array has changed (PulsedDevice::changes()). If W is one array
/// alone, with factor 1, nothing is stored: the matrix is the array's own.
class WeightedArrays {
 public:
  /// W over `arrays`, which must outlive this object, with a factor each; arrays with factor 0 are
  /// left out. At least one factor is not 0, and at most kMostWeighted are.
  WeightedArrays(std::vector<const PulsedDevice *> arrays, const std::vector<float> &gammas);

  /// Gives the first array signs of its lines, xSigns [cols] and dSigns [rows] in the context's
  /// memory; signsChanged() is to be called whenever they change.
  void setSigns(const float *xSigns, const float *dSigns) {
    xSigns_ = xSigns;
    dSigns_ = dSigns;
    signsChanged();
  }
  void signsChanged() { isMade_ = false; }
  /// Reserves the storage of weights(), which then cannot run out of memory.
  void reserve(const Context &context);
  /// W [rows, cols] as a perfect read sees it now; valid until an array changes.
  MatrixView<const float> weights(const Context &context);
  /// A number that no weight exceeds, given the bounds of all arrays that the constructor took.
  double bound(const std::vector<double> &bounds) const;
  /// Writes W to `out`.
  void write(const Context &context, MatrixView<float> out) const;
  /// Bytes of the kept sum.
  size_t memoryBytes() const { return sum_.bytes(); }
  /// Frees the kept sum, which weights() makes anew.
  void drop() {
    isMade_ = false;
    sum_ = {};
  }

 private:
  bool isOneArray() const { return arrays_.size() == 1 && gammas_.front() == 1.0f && !xSigns_; }
  WeightedSum into(MatrixView<float> out) const;
  uint64_t changes() const;

  std::vector<const PulsedDevice *> arrays_;
  std::vector<float> gammas_;
  std::vector<size_t> places_;  // of the arrays, among those that the constructor took
  const float *xSigns_ = nullptr;
  const float *dSigns_ = nullptr;
  Buffer<float> sum_;
  bool isMade_ = false;  // whether sum_ is the sum at made_
  uint64_t made_ = 0;    // changes() when sum_ was made
};

}  // namespace pulsora
