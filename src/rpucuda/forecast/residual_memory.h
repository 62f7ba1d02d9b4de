#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/view.h"

namespace pulsora {

/// The latest `capacity` residuals of predictions, with keys that describe their circumstances. In
/// host memory, like the rows passed to it.
///
/// The correction of a prediction is 0.7 times a mean of the residuals of the `nearest` entries,
/// plus 0.3 times a linear function of the key, learned by least mean squares at rate 0.01; at most
/// 0.2 of the prediction's magnitude. Nearest by cosine (0 where a key is 0), ties to the newer
/// entry; the weight of an entry is 0.95^(age / 100) times its confidence. An empty memory corrects
/// nothing.
class ResidualMemory {
 public:
  /// InputError unless all arguments are at least 1.
  explicit ResidualMemory(int64_t keySize, int64_t capacity = 1000, int64_t nearest = 10);

  int64_t keySize() const { return keySize_; }
  int64_t capacity() const { return capacity_; }
  int64_t nearest() const { return nearest_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

  /// Stores a residual, the observed value minus the prediction, at a step not before the last one.
  /// The confidence is above 0 and at most 1, such as 1 / (1 + the standard deviation of the
  /// prediction). InputError, changing nothing, for values out of range or not finite.
  void remember(const float *key, double residual, double step, double confidence);
  /// The corrections of predictions made at `step` for the keys [b, keySize].
  void corrections(const Context &context, MatrixView<const float> keys, const double *predictions,
                   double step, double *out) const;

  struct Entry {
    double residual;
    double step;
    double confidence;
  };
  /// The complete memory, oldest entry first: entries, their keys one after another, and the linear
  /// function (one factor for each element of a key, then the constant).
  std::vector<Entry> entries() const;
  std::vector<float> keys() const;
  const std::vector<double> &linear() const { return linear_; }
  /// Restores another memory's entries(), keys() and linear(). InputError, changing nothing, unless
  /// sizes fit and remember() would take the values.
  void restore(const std::vector<Entry> &entries, const std::vector<float> &keys,
               const std::vector<double> &linear);

 private:
  /// InputError for entries that remember() refuses.
  void require(const float *key, const Entry &entry) const;
  double correction(const float *key, double prediction, double step) const;
  double cosine(const float *key, double norm, int64_t place) const;
  double linearPart(const float *key) const;
  const float *keyAt(int64_t place) const { return keys_.data() + place * keySize_; }
  void put(const float *key, const Entry &entry);

  int64_t keySize_;
  int64_t capacity_;
  int64_t nearest_;
  // A ring: once full, `next_` is the oldest entry.
  std::vector<Entry> entries_;
  std::vector<float> keys_;
  std::vector<double> norms_;
  int64_t next_ = 0;
  std::vector<double> linear_;
};

}  // namespace pulsora
