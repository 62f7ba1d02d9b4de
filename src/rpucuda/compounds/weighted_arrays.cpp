#include "compounds/weighted_arrays.h"

#include <algorithm>
#include <cmath>

#include "core/backend.h"
#include "core/cuda_api.h"

namespace pulsora {
namespace {

// WeightedSum on the CPU for a gapless result: array by array in short pieces, so that the loops
// vectorise.
void sumInPieces(const Context &context, const WeightedSum &sum) {
  constexpr int64_t kPiece = 1024;
  parallelRange(context, sum.out.size(), kStepsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t count = std::min(kPiece, end - first);
      float *out = sum.out.data + first;
      std::fill(out, out + count, 0.0f);
      for (int k = 0; k < sum.count; ++k) {
        const float *weights = sum.weights[k] + first;
        const float gamma = sum.gammas[k];
        for (int64_t i = 0; i < count; ++i) out[i] = WeightedSum::added(out[i], gamma, weights[i]);
      }
    }
  });
}

// Whether work of the context is recorded now, and may be discarded or run later.
bool isRecorded(const Context &context) { return !context.onCpu() && isCaptured(context.stream); }

}  // namespace

WeightedArrays::WeightedArrays(std::vector<const PulsedDevice *> arrays,
                               const std::vector<float> &gammas) {
  PULSORA_CHECK(ConfigError, arrays.size() == gammas.size(), "a weight of ", arrays.size(),
                " arrays has ", gammas.size(), " factors; give one for each array");
  for (size_t k = 0; k < arrays.size(); ++k) {
    if (gammas[k] == 0.0f) continue;
    arrays_.push_back(arrays[k]);
    gammas_.push_back(gammas[k]);
    places_.push_back(k);
  }
  PULSORA_CHECK(ConfigError, !arrays_.empty() && arrays_.size() <= size_t{kMostWeighted},
                "a weight has ", arrays_.size(), " arrays with a factor that is not 0; give 1 to ",
                kMostWeighted);
}

uint64_t WeightedArrays::changes() const {
  uint64_t sum = 0;
  for (const PulsedDevice *array : arrays_) sum += array->changes();
  return sum;
}

WeightedSum WeightedArrays::into(MatrixView<float> out) const {
  WeightedSum sum;
  for (size_t k = 0; k < arrays_.size(); ++k) {
    sum.weights[sum.count] = arrays_[k]->weights().data;
    sum.gammas[sum.count++] = gammas_[k];
  }
  sum.xSigns = xSigns_;
  sum.dSigns = dSigns_;
  sum.out = out;
  return sum;
}

void WeightedArrays::reserve(const Context &context) {
  if (isOneArray()) return;
  const int64_t before = sum_.size();
  sum_.reserve(context, arrays_.front()->size());
  isMade_ = isMade_ && sum_.size() == before;
}

MatrixView<const float> WeightedArrays::weights(const Context &context) {
  const PulsedDevice &first = *arrays_.front();
  if (isOneArray()) return first.weights();
  reserve(context);
  const MatrixView<float> kept = rowMajor(sum_.data(), first.rows(), first.cols());
  const uint64_t now = changes();
  if (isMade_ && made_ == now) return kept;
  const WeightedSum sum = into(kept);
  if (context.onCpu() && !xSigns_) {
    sumInPieces(context, sum);
  } else {
    forEach(context, kept.size(), sum);
  }
  // A recorded sum exists only once the record has run.
  isMade_ = !isRecorded(context);
  made_ = now;
  return kept;
}

double WeightedArrays::bound(const std::vector<double> &bounds) const {
  constexpr double kRounding = 1e-6;  // of a sum of kMostWeighted products
  double sum = 0.0;
  for (size_t k = 0; k < places_.size(); ++k)
    sum += std::abs(double(gammas_[k])) * bounds[places_[k]];
  return isOneArray() ? sum : sum * (1.0 + kRounding);
}

void WeightedArrays::write(const Context &context, MatrixView<float> out) const {
  forEach(context, out.size(), into(out));
}

}  // namespace pulsora
