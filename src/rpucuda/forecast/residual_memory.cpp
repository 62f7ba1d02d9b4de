#include "forecast/residual_memory.h"

#include <algorithm>
#include <cmath>

#include "core/backend.h"

namespace pulsora {
namespace {

constexpr double kRate = 0.01;   // learning rate of least mean squares
constexpr double kDecay = 0.95;  // of a weight, per kDecaySteps
constexpr double kDecaySteps = 100.0;
constexpr double kRemembered = 0.7;  // share of the remembered residuals in a correction
constexpr double kLargest = 0.2;     // correction, as a fraction of the prediction's magnitude

double normOf(const float *key, int64_t size) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i)
    sum += static_cast<double>(key[i]) * static_cast<double>(key[i]);
  return std::sqrt(sum);
}

}  // namespace

ResidualMemory::ResidualMemory(int64_t keySize, int64_t capacity, int64_t nearest)
    : keySize_(keySize), capacity_(capacity), nearest_(nearest) {
  PULSORA_CHECK(InputError, keySize >= 1 && capacity >= 1 && nearest >= 1,
                "ResidualMemory: key_size is ", keySize, ", capacity ", capacity, " and nearest ",
                nearest, "; they must be at least 1");
  linear_.assign(static_cast<size_t>(keySize) + 1, 0.0);
}

double ResidualMemory::linearPart(const float *key) const {
  double sum = linear_.back();
  for (int64_t i = 0; i < keySize_; ++i) {
    sum += static_cast<double>(key[i]) * linear_[static_cast<size_t>(i)];
  }
  return sum;
}

void ResidualMemory::put(const float *key, const Entry &entry) {
  const bool full = size() == capacity_;
  if (!full) {
    entries_.push_back(entry);
    norms_.push_back(0.0);
    keys_.resize(keys_.size() + static_cast<size_t>(keySize_));
  }
  const int64_t place = full ? next_ : size() - 1;
  if (full) next_ = (next_ + 1) % capacity_;
  entries_[static_cast<size_t>(place)] = entry;
  norms_[static_cast<size_t>(place)] = normOf(key, keySize_);
  std::copy_n(key, keySize_, keys_.begin() + place * keySize_);
}

void ResidualMemory::require(const float *key, const Entry &entry) const {
  bool finite = std::isfinite(entry.residual) && std::isfinite(entry.step);
  for (int64_t i = 0; i < keySize_; ++i) finite = finite && std::isfinite(key[i]);
  PULSORA_CHECK(InputError, finite, "remember: key, residual and step must be finite");
  PULSORA_CHECK(InputError, entry.confidence > 0.0 && entry.confidence <= 1.0,
                "remember: confidence is ", entry.confidence,
                "; it must be above 0 and at most 1, such as 1 / (1 + standard deviation)");
}

void ResidualMemory::remember(const float *key, double residual, double step, double confidence) {
  const Entry entry{residual, step, confidence};
  require(key, entry);
  if (size() > 0) {
    const int64_t newest = size() < capacity_ ? size() - 1 : (next_ + capacity_ - 1) % capacity_;
    const double before = entries_[static_cast<size_t>(newest)].step;
    PULSORA_CHECK(InputError, step >= before, "remember: step is ", step, ", before the last one, ",
                  before, "; residuals are taken up in their order");
  }
  // For larger keys, steps at rate kRate would diverge: one step takes the whole residual.
  const double length = normOf(key, keySize_);
  const double size = length * length + 1.0;
  const double rate = kRate * size < 2.0 ? kRate : 1.0 / size;
  const double change = rate * (residual - linearPart(key));
  for (int64_t i = 0; i < keySize_; ++i) {
    linear_[static_cast<size_t>(i)] += change * static_cast<double>(key[i]);
  }
  linear_.back() += change;
  put(key, entry);
}

double ResidualMemory::cosine(const float *key, double norm, int64_t place) const {
  const double other = norms_[static_cast<size_t>(place)];
  if (!(norm > 0.0) || !(other > 0.0)) return 0.0;
  const float *stored = keyAt(place);
  double sum = 0.0;
  for (int64_t i = 0; i < keySize_; ++i) {
    sum += static_cast<double>(key[i]) * static_cast<double>(stored[i]);
  }
  return sum / norm / other;
}

double ResidualMemory::correction(const float *key, double prediction, double step) const {
  const double norm = normOf(key, keySize_);
  if (norm - norm != 0.0) return norm - norm;  // NaN, if the key has a NaN or infinity
  if (std::isnan(prediction)) return prediction;
  if (size() == 0) return 0.0;
  struct Candidate {
    double similarity;
    int64_t age;  // 0 is the newest
    int64_t place;
  };
  std::vector<Candidate> found;
  found.reserve(entries_.size());
  for (int64_t age = 0; age < size(); ++age) {
    const int64_t place = (next_ + size() - 1 - age) % size();
    found.push_back({cosine(key, norm, place), age, place});
  }
  const auto nearer = [](const Candidate &a, const Candidate &b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.age < b.age;
  };
  const auto last = found.begin() + std::min(nearest_, size());
  std::partial_sort(found.begin(), last, found.end(), nearer);
  double weights = 0.0;
  double weighted = 0.0;
  for (auto candidate = found.begin(); candidate != last; ++candidate) {
    const Entry &entry = entries_[static_cast<size_t>(candidate->place)];
    const double weight = std::pow(kDecay, (step - entry.step) / kDecaySteps) * entry.confidence;
    weights += weight;
    weighted += weight * entry.residual;
  }
  const double remembered = weights > 0.0 ? weighted / weights : 0.0;
  const double blend = kRemembered * remembered + (1.0 - kRemembered) * linearPart(key);
  const double most = kLargest * std::abs(prediction);
  return blend > most ? most : (blend < -most ? -most : blend);
}

void ResidualMemory::corrections(const Context &context, MatrixView<const float> keys,
                                 const double *predictions, double step, double *out) const {
  PULSORA_CHECK(InputError, keys.cols == keySize_ && keys.isRowMajor(), "corrections: keys have ",
                keys.cols, " columns; this memory has keys of ", keySize_, " adjacent elements");
  PULSORA_CHECK(InputError, std::isfinite(step), "corrections: step is ", step,
                "; it must be finite");
  Context host = context;
  host.backend = Backend::Cpu;
  const int64_t grain = 1 + kStepsPerThread / (size() * keySize_ + 1);
  parallelRange(host, keys.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = correction(keys.row(i).data, predictions[i], step);
  });
}

std::vector<ResidualMemory::Entry> ResidualMemory::entries() const {
  std::vector<Entry> ordered;
  ordered.reserve(entries_.size());
  for (int64_t i = 0; i < size(); ++i) {
    ordered.push_back(entries_[static_cast<size_t>((next_ + i) % size())]);
  }
  return ordered;
}

std::vector<float> ResidualMemory::keys() const {
  std::vector<float> ordered;
  ordered.reserve(keys_.size());
  for (int64_t i = 0; i < size(); ++i) {
    const float *key = keyAt((next_ + i) % size());
    ordered.insert(ordered.end(), key, key + keySize_);
  }
  return ordered;
}

void ResidualMemory::restore(const std::vector<Entry> &entries, const std::vector<float> &keys,
                             const std::vector<double> &linear) {
  const auto count = static_cast<int64_t>(entries.size());
  const bool fits = count <= capacity_ && static_cast<int64_t>(keys.size()) == count * keySize_ &&
                    static_cast<int64_t>(linear.size()) == keySize_ + 1;
  PULSORA_CHECK(InputError, fits, "ResidualMemory: ", count, " entries, ", keys.size(),
                " numbers of keys and ", linear.size(),
                " of the linear part do not fit a memory of ", capacity_, " entries with keys of ",
                keySize_);
  for (int64_t i = 0; i < count; ++i)
    require(keys.data() + i * keySize_, entries[static_cast<size_t>(i)]);
  for (const double factor : linear)
    PULSORA_CHECK(InputError, std::isfinite(factor), "ResidualMemory: the linear part has ", factor,
                  "; it must be finite");
  entries_.clear();
  keys_.clear();
  norms_.clear();
  next_ = 0;
  for (int64_t i = 0; i < count; ++i) {
    put(keys.data() + i * keySize_, entries[static_cast<size_t>(i)]);
  }
  linear_ = linear;
}

}  // namespace pulsora
