#include "noise_models/noise_model_params.h"

#include <mutex>
#include <utility>

#include "core/type_list.h"
#include "noise_model_list.h"
#include "noise_models/noise_contract.h"

namespace pulsora {
namespace {

template <class Model>
NoiseModel makeNoiseModel() {
  using Params = typename Model::Params;
  static_assert(isNoiseModel<Model>());
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
std::deque<NoiseModel> makeModels(TypeList<Models...>) {
  return {makeNoiseModel<Models>()...};
}

std::deque<NoiseModel> &registry() {
  static std::deque<NoiseModel> models = makeModels(AllNoiseModels{});
  return models;
}

std::mutex &registryLock() {
  static std::mutex lock;
  return lock;
}

const NoiseModel &firstModel() {
  static const NoiseModel &first = registry().front();
  return first;
}

}  // namespace

const std::deque<NoiseModel> &noiseModels() { return registry(); }

const NoiseModel &registerNoiseModel(NoiseModel model) {
  const std::lock_guard<std::mutex> lock(registryLock());
  for (const NoiseModel &known : noiseModels()) {
    PULSORA_CHECK(ConfigError, known.name != model.name, "there is a noise model '", model.name,
                  "' already; choose another name");
  }
  return registry().emplace_back(std::move(model));
}

const NoiseModel &noiseModel(const std::string &name, const std::string &path) {
  const std::lock_guard<std::mutex> lock(registryLock());
  std::vector<std::string> names;
  for (const NoiseModel &model : noiseModels()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  throw ConfigError(message(joinPath(path, "model"), " is '", name,
                            "', which is not a noise model (a model from source is known after "
                            "pulsora.noise_models.from_source())",
                            suggest(name, names)));
}

NoiseModelParams::NoiseModelParams() : NoiseModelParams(firstModel(), Value(Value::Map{})) {}

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

OptionalNoiseModel OptionalNoiseModel::read(const Value &value, const std::string &path) {
  if (value.isNull()) return {};
  PULSORA_CHECK(ConfigError, value.map(), path, " is ", value.describe(),
                "; write a noise model such as Exponential(), or None for cells that do not drift");
  return NoiseModelParams::read(value, path);
}

}  // namespace pulsora
