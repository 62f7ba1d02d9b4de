#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "array/array_keys.h"
#include "compounds/analog_device.h"
#include "compounds/tile_periphery.h"
#include "parameters/field.h"

// What a tile can hold is a registered compound: a struct of parameters that can make a device.
//
//   struct ParallelParams : CompoundBase {
//     static constexpr const char *kKind = "parallel";          // what a configuration says
//     static constexpr const char *kName = "ParallelConfig";    // its class in Python
//     static constexpr const char *kDoc = "Two arrays that are read together.";
//     DeviceParams first, second;
//     template <class Visitor>
//     static void fields(Visitor &f) { f(&ParallelParams::first, ...); ... }
//     CompoundFacts facts() const { return {"first"}; }
//     std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
//   };
//
// A line in cmake/compounds.cmake registers it. The Python class, stubs, documentation, what a
// saved state holds, and the lists that contract tests run over follow from that.

namespace pulsora {

/// What a compound needs to make its device.
struct CompoundSite {
  const Context &context;
  int64_t dSize;
  int64_t xSize;
  const TilePeriphery &periphery;
  TileKeys keys;
};

/// Properties of a compound with given parameters that layers, optimisers and recorded steps depend on.
struct CompoundFacts {
  /// Parameter of the device whose cells take the weights that are written; empty for weights without
  /// cells.
  std::string written;
  /// Whether every update pulses those cells, so that a large update takes longer than sending its
  /// result to other processes.
  bool pulsesWritten = true;
  /// Whether an update needs the backward read of its mini-batch.
  bool reusesReads = false;
  /// Whether an update may wait for the GPU, which a recorded step must not.
  bool waitsForHost = false;
  /// Whether one device serves a whole layer, and is read in blocks, instead of one device per tile.
  bool spansLayer = false;
};

/// Base of every compound's parameters. A compound may redefine these members, and declares
/// `CompoundFacts facts() const`.
struct CompoundBase {
  /// TilePeriphery where a configuration gives none.
  static TilePeriphery defaults() { return {}; }
  /// Whether updates are made by pulses, so that `update` means something.
  static constexpr bool kPulses = true;
};

/// A compound's parameters without their type; CompoundParams holds them.
class AnyCompound {
 public:
  virtual ~AnyCompound() = default;
  virtual Value write() const = 0;
  virtual CompoundFacts facts() const = 0;
  virtual std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const = 0;
};

/// One registered compound: what the rest of the library, the bindings, the documentation and the
/// contract tests know about it.
struct CompoundModel {
  std::string kind;
  std::string name;
  std::string doc;
  std::vector<FieldInfo> fields;     ///< its parameters
  std::vector<FieldInfo> periphery;  ///< those of TilePeriphery that it uses, with its defaults
  TilePeriphery defaults;
  std::shared_ptr<const AnyCompound> (*read)(const Value &own, const std::string &path);
};

/// All registered compounds, in the order of cmake/compounds.cmake.
const std::vector<CompoundModel> &compoundModels();

/// The compound of that kind; ConfigError with the known kinds otherwise.
const CompoundModel &compoundModel(const std::string &kind, const std::string &path);

/// A compound with its parameters: what a tile holds. Immutable, cheap to copy, and valid from the
/// start.
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
  /// Its parameters as the struct of the compound; ConfigError if this is another compound.
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
