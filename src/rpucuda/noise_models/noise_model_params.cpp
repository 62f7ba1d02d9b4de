#include "noise_models/noise_model_params.h"

#include <utility>

#include "core/type_list.h"
#include "noise_model_list.h"

namespace pulsora {
namespace {

template <class Model>
NoiseModel makeNoiseModel() {
  using Params = typename Model::Params;
  static_assert(std::is_trivially_copyable_v<Params>, "Params are handed to CUDA kernels by value");
  static_assert(std::is_base_of_v<NoiseParams, Params>, "a model's Params extend NoiseParams");
  NoiseModel m;
  m.name = Model::kName;
  m.doc = Model::kDoc;
  m.fields = describeParams<Params>();
  m.readParams = [](const Value &value,
                    const std::string &path) -> std::shared_ptr<const NoiseParams> {
    return std::make_shared<const Params>(pulsora::readParams<Params>(value, path));
  };
  m.writeParams = [](const NoiseParams &p) {
    return pulsora::writeParams(static_cast<const Params &>(p));
  };
  m.lastTime = [](const NoiseParams &p) { return Model::lastTime(static_cast<const Params &>(p)); };
  m.readDuration = [](const NoiseParams &p) {
    return Model::readDuration(static_cast<const Params &>(p));
  };
  m.ageOf = [](double time, const NoiseParams &p) {
    return Model::ageOf(time, static_cast<const Params &>(p));
  };
  return m;
}

template <class... Models>
std::vector<NoiseModel> makeModels(TypeList<Models...>) {
  return {makeNoiseModel<Models>()...};
}

}  // namespace

const std::vector<NoiseModel> &noiseModels() {
  static const std::vector<NoiseModel> kModels = makeModels(AllNoiseModels{});
  return kModels;
}

const NoiseModel &noiseModel(const std::string &name, const std::string &path) {
  std::vector<std::string> names;
  for (const NoiseModel &model : noiseModels()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  throw ConfigError(message(joinPath(path, "model"), " is '", name, "', which is not a noise model",
                            suggest(name, names)));
}

NoiseModelParams::NoiseModelParams()
    : NoiseModelParams(noiseModels().front(), Value(Value::Map{})) {}

NoiseModelParams::NoiseModelParams(const NoiseModel &model, const Value &params)
    : model_(&model), data_(model.readParams(params, model.name)) {}

NoiseModelParams NoiseModelParams::read(const Value &value, const std::string &path) {
  const Value::Map *map = value.map();
  PULSORA_CHECK(ConfigError, map, path, " is ", value.describe(),
                "; write a noise model such as PCMLike(g_max=25)");
  Value::Map rest = *map;
  const auto named = rest.find("model");
  PULSORA_CHECK(ConfigError, named != rest.end() && named->second.text(), path,
                " names no noise model; add 'model', for example 'PCMLike'");
  NoiseModelParams params;
  params.model_ = &noiseModel(*named->second.text(), path);
  rest.erase(named);
  params.data_ = params.model_->readParams(Value(std::move(rest)), path);
  return params;
}

Value NoiseModelParams::write() const {
  Value value = model_->writeParams(*data_);
  (*value.map())["model"] = model_->name;
  return value;
}

}  // namespace pulsora
