#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "array/array_keys.h"
#include "compounds/analog_device.h"
#include "compounds/tile_periphery.h"
#include "parameters/field.h"

// A tile holds a registered compound: a struct of parameters that can make a device.
//
//   struct ParallelParams : CompoundBase {
//     static constexpr const char *kKind = "parallel";          // name in configurations
//     static constexpr const char *kName = "ParallelConfig";    // its class in Python
//     static constexpr const char *kDoc = "Two arrays that are read together.";
//     DeviceParams first, second;
//     template <class Visitor>
//     static void fields(Visitor &f) { f(&ParallelParams::first, ...); ... }
//     CompoundFacts facts() const { return {"first"}; }
//     std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
//   };
//
// A line in cmake/compounds.cmake registers it. The Python class, stubs, documentation, the
// contents of saved states, and the lists of the contract tests follow from that line.

namespace pulsora {

/// The arguments with which a compound makes its device.
struct CompoundSite {
  const Context &context;
  int64_t dSize;
  int64_t xSize;
  const TilePeriphery &periphery;
  TileKeys keys;
};

/// Properties of a compound with given parameters, for layers, optimisers and recorded steps.
struct CompoundFacts {
  /// Path of the device model whose cells hold written weights: the parameter's name, with the
  /// place in a list ("visible", "devices[0]"); empty for weights without cells.
  std::string written;
  /// Whether every update pulses the cells of `written`, so that a large update takes longer than
  /// sending its result to other processes.
  bool pulsesWritten = true;
  /// Whether an update needs the backward read of its mini-batch.
  bool reusesReads = false;
  /// Whether an update may wait for the GPU, which a recorded step must not.
  bool waitsForHost = false;
  /// Whether one device, read in blocks, serves a whole layer, instead of one device per tile.
  bool spansLayer = false;
  /// Whether a layer holds its weight as a number that any optimiser trains, which is written to
  /// the tiles for reads.
  bool digitalWeight = false;
  /// With digitalWeight: whether cells follow that number by pulses (AnalogDevice::follow), after
  /// each step of an optimiser.
  bool follows = false;
};

/// Settings of a compound that the contract tests try beside its defaults.
struct CompoundVariant {
  std::string name;  ///< unique among kinds and variants; letters, digits and underscores
  Value::Map settings;
};

/// Base of every compound's parameters. A compound may redefine these members, and declares
/// `CompoundFacts facts() const`.
struct CompoundBase {
  /// TilePeriphery used where a configuration gives none.
  static TilePeriphery defaults() { return {}; }
  /// Whether updates are made by pulses, so that `update` means something.
  static constexpr bool kPulses = true;
  /// Settings for which all that the contract tests show of the defaults is to be shown too.
  static std::vector<CompoundVariant> variants() { return {}; }
  /// The parameters in a state of this or an earlier version, so that they can be read.
  static Value::Map fromSaved(Value::Map own) { return own; }
};

/// A compound's parameters behind a type-erased interface; held by CompoundParams.
class AnyCompound {
 public:
  virtual ~AnyCompound() = default;
  virtual Value write() const = 0;
  virtual CompoundFacts facts() const = 0;
  virtual std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const = 0;
};

/// One registered compound, described for the rest of the library, the bindings, the documentation
/// and the contract tests.
struct CompoundModel {
  std::string kind;
  std::string name;
  std::string doc;
  std::vector<FieldInfo> fields;     ///< its parameters
  std::vector<FieldInfo> periphery;  ///< fields of TilePeriphery that it uses, with its defaults
  TilePeriphery defaults;
  std::vector<CompoundVariant> variants;
  std::shared_ptr<const AnyCompound> (*read)(const Value &own, const std::string &path);
  Value::Map (*fromSaved)(Value::Map own);
};

/// All registered compounds, in the order of cmake/compounds.cmake.
const std::vector<CompoundModel> &compoundModels();

/// The compound called `kind`; ConfigError with the known kinds if there is none.
const CompoundModel &compoundModel(const std::string &kind, const std::string &path);

/// A compound with its parameters, from which a tile makes its device. Immutable, cheap to copy,
/// and valid from the start.
class CompoundParams {
 public:
  /// A single array of ConstantStep cells.
  CompoundParams();
  /// From a compound's struct: CompoundParams compound = LRTTParams{}. ConfigError for values out
  /// of their ranges.
  template <class Params, class = std::enable_if_t<std::is_base_of_v<CompoundBase, Params>>>
  CompoundParams(const Params &params)
      : CompoundParams(compoundModel(Params::kKind, "kind"), pulsora::writeParams(params),
                       Params::kName) {}
  /// The compound `model` with parameters `own`; missing ones take their defaults.
  CompoundParams(const CompoundModel &model, const Value &own, const std::string &path)
      : model_(&model), compound_(model.read(own, path)) {}

  const CompoundModel &model() const { return *model_; }
  /// All parameters of the compound, without periphery.
  Value write() const { return compound_->write(); }
  CompoundFacts facts() const { return compound_->facts(); }
  /// The parameters as the compound's struct; ConfigError if this is another compound.
  template <class Params>
  Params as() const {
    PULSORA_CHECK(ConfigError, model_->kind == Params::kKind, "kind is '", model_->kind,
                  "', but parameters of '", Params::kKind, "' were asked for");
    return readParams<Params>(write(), Params::kName);
  }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const {
    return compound_->make(site);
  }

 private:
  const CompoundModel *model_;
  std::shared_ptr<const AnyCompound> compound_;
};

}  // namespace pulsora
