#include "compound_list.h"
#include "compounds/compound_model.h"

// The registry of compounds. It is in tile/ and not in compounds/, because it includes them all.

namespace pulsora {
namespace {

template <class Params>
class CompoundOf final : public AnyCompound {
 public:
  explicit CompoundOf(const Params &params) : params_(params) {}
  Value write() const override { return writeParams(params_); }
  CompoundFacts facts() const override { return params_.facts(); }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const override {
    return params_.make(site);
  }

 private:
  Params params_;
};

// The fields of TilePeriphery that a compound uses, with the compound's defaults.
template <class Params>
std::vector<FieldInfo> peripheryOf(const TilePeriphery &defaults) {
  const Value values = writeParams(defaults);
  std::vector<FieldInfo> used;
  for (FieldInfo &row : describeParams<TilePeriphery>()) {
    if (row.name == "update" && !Params::kPulses) continue;
    row.defaultValue = values.map()->at(row.name);
    used.push_back(std::move(row));
  }
  return used;
}

template <class Params>
CompoundModel makeModel() {
  static_assert(std::is_base_of_v<CompoundBase, Params>, "a compound extends CompoundBase");
  CompoundModel m;
  m.kind = Params::kKind;
  m.name = Params::kName;
  m.doc = Params::kDoc;
  m.fields = describeParams<Params>();
  m.defaults = Params::defaults();
  m.variants = Params::variants();
  m.periphery = peripheryOf<Params>(m.defaults);
  m.read = [](const Value &own, const std::string &path) -> std::shared_ptr<const AnyCompound> {
    return std::make_shared<const CompoundOf<Params>>(readParams<Params>(own, path));
  };
  m.fromSaved = [](Value::Map own) { return Params::fromSaved(std::move(own)); };
  return m;
}

template <class... Compounds>
std::vector<CompoundModel> makeModels(TypeList<Compounds...>) {
  return {makeModel<Compounds>()...};
}

}  // namespace

const std::vector<CompoundModel> &compoundModels() {
  static const std::vector<CompoundModel> kModels = makeModels(AllCompounds{});
  return kModels;
}

const CompoundModel &compoundModel(const std::string &kind, const std::string &path) {
  std::vector<std::string> kinds;
  for (const CompoundModel &model : compoundModels()) {
    if (model.kind == kind) return model;
    kinds.push_back(model.kind);
  }
  throw ConfigError(message(path, " is '", kind, "', which is not a choice", suggest(kind, kinds)));
}

CompoundParams::CompoundParams()
    : CompoundParams(compoundModels().front(), Value(Value::Map{}), "") {}

}  // namespace pulsora
