#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "noise_models/noise_model.h"
#include "parameters/field.h"

namespace pulsora {

struct NoiseKernels;  // noise_models/realise_cells.h

/// One registered noise model without its type: what configurations, the bindings, the
/// documentation and the tests know about it.
struct NoiseModel {
  std::string name;
  std::string doc;
  std::vector<FieldInfo> fields;
  std::function<std::shared_ptr<const NoiseParams>(const Value &, const std::string &path)>
      readParams;
  // Functions that take NoiseParams expect those that readParams() returned.
  std::function<Value(const NoiseParams &)> writeParams;
  /// The largest time in s for which the model has numbers.
  double (*lastTime)(const NoiseParams &) = nullptr;
  /// Duration in s of a read with 1/f noise; 0 if reads have none.
  double (*readDuration)(const NoiseParams &) = nullptr;
  /// Age of a device at a time, for its 1/f noise.
  double (*ageOf)(double time, const NoiseParams &) = nullptr;
  /// The loops of a model that was compiled at run time; null for those of the tree.
  const NoiseKernels *kernels = nullptr;
  std::string source = {};      // text of such a model
  std::string sourceHash = {};  // SHA-256 of the text in hexadecimal digits
};

/// All registered models: cmake/noise_models.cmake in its order, then models registered later.
/// References to models stay valid.
const std::deque<NoiseModel> &noiseModels();

/// Adds a model that was compiled at run time, and returns it as registered. ConfigError if the
/// name is taken. No other thread may read noiseModels() meanwhile; tiles may be made.
const NoiseModel &registerNoiseModel(NoiseModel model);

/// The model of that name; ConfigError with the known names otherwise.
const NoiseModel &noiseModel(const std::string &name, const std::string &path);

/// A noise model with its parameters: the value of a configuration entry that names one. Immutable,
/// cheap to copy. As a Value it is a table of the parameters plus `"model": name`.
class NoiseModelParams {
 public:
  static constexpr const char *kFieldType = "noise_model";

  /// PCMLike with its defaults.
  NoiseModelParams();
  /// A model's own parameter struct: NoiseModelParams noise = PCMLike::Params{};
  template <class Params, class = std::enable_if_t<std::is_base_of_v<NoiseParams, Params>>>
  NoiseModelParams(const Params &params)  // NOLINT(google-explicit-constructor)
      : NoiseModelParams(noiseModel(Params::kName, Params::kName), pulsora::writeParams(params)) {}

  static NoiseModelParams read(const Value &value, const std::string &path);
  Value write() const;

  const NoiseModel &model() const { return *model_; }
  /// The parameters that every model has.
  const NoiseParams &common() const { return *data_; }
  /// The parameters as the model's own struct; `Params` must belong to model().
  template <class Params>
  const Params &as() const {
    return static_cast<const Params &>(*data_);
  }
  double lastTime() const { return model_->lastTime(*data_); }
  double readDuration() const { return model_->readDuration(*data_); }
  /// The share of the variance of read noise at a time that is slower than `window` s.
  double slowShare(double time, double window) const {
    return pulsora::slowShare(model_->ageOf(time, *data_), readDuration(), window);
  }

 private:
  NoiseModelParams(const NoiseModel &model, const Value &params);

  const NoiseModel *model_;
  std::shared_ptr<const NoiseParams> data_;
};

/// A noise model with its parameters, or none: the value of a configuration entry that may name a
/// noise model.
class OptionalNoiseModel {
 public:
  static constexpr const char *kFieldType = "noise_model";

  OptionalNoiseModel() = default;
  OptionalNoiseModel(NoiseModelParams model)  // NOLINT(google-explicit-constructor)
      : model_(std::move(model)) {}
  template <class Params, class = std::enable_if_t<std::is_base_of_v<NoiseParams, Params>>>
  OptionalNoiseModel(const Params &params)  // NOLINT(google-explicit-constructor)
      : model_(params) {}

  static OptionalNoiseModel read(const Value &value, const std::string &path);
  /// Null for none.
  Value write() const { return model_ ? model_->write() : Value(); }

  explicit operator bool() const { return model_.has_value(); }
  const NoiseModelParams &operator*() const { return *model_; }    // NOLINT
  const NoiseModelParams *operator->() const { return &*model_; }  // NOLINT

 private:
  std::optional<NoiseModelParams> model_;
};

}  // namespace pulsora
