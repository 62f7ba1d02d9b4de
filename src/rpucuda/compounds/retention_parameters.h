#pragma once

#include <memory>

#include "array/retention.h"
#include "compounds/compound_model.h"

namespace pulsora {

/// Parameters of compounds whose arrays may drift after they were pulsed.
struct RetentionParams {
  OptionalNoiseModel retention;
  RetentionCell retention_cell = RetentionCell::Pair;
  RetentionCompensation retention_compensation = RetentionCompensation::None;

  template <class Visitor>
  static void fields(Visitor &f) {
    modelFields(f,
                "Noise model by which the cells drift after their last pulse; None: they keep "
                "their weights. Reads see it at the age that drift() sets.");
    cellFields(f);
  }
  template <class Check>
  void check(const Check &c) const {
    c.require(retention || retention_cell == RetentionCell::Pair, c.path("retention_cell"), " is '",
              nameOf(retention_cell), "', but ", c.path("retention"),
              " is None; give a noise model, or leave the cell at 'pair'");
    c.require(retention || retention_compensation == RetentionCompensation::None,
              c.path("retention_compensation"), " is '", nameOf(retention_compensation), "', but ",
              c.path("retention"),
              " is None, so that nothing drifts; give a noise model, or 'none'");
  }
  /// Gives the arrays of a device the retention.
  std::unique_ptr<AnalogDevice> retain(const CompoundSite &site,
                                       std::unique_ptr<AnalogDevice> device) const;

 protected:
  template <class Visitor>
  static void modelFields(Visitor &f, const char *doc) {
    f(&RetentionParams::retention, "retention", anyNumber(), "", doc);
  }
  template <class Visitor>
  static void cellFields(Visitor &f) {
    f(&RetentionParams::retention_cell, "retention_cell", anyNumber(), "",
      "Devices with which a weight drifts: 'pair', of which the one for the weight's sign carries "
      "it; 'two_sided_pair', both of which carry half of it; 'single', one against a fixed "
      "reference at half of the range.");
    f(&RetentionParams::retention_compensation, "retention_compensation", anyNumber(), "",
      "Digital compensation of the drift, measured by exact one-hot reads of the tile when drift() "
      "sets an age: one factor for the tile ('global') or for each output ('per_output'); or "
      "'none'.");
  }
};

/// RetentionParams of compounds that have a visible array and fast ones.
struct FastRetentionParams : RetentionParams {
  OptionalNoiseModel retention_fast;

  template <class Visitor>
  static void fields(Visitor &f) {
    modelFields(f,
                "Noise model by which the cells of the visible array drift after their last "
                "pulse; None: they keep their weights. Reads see it at the age that drift() "
                "sets.");
    f(&FastRetentionParams::retention_fast, "retention_fast", anyNumber(), "",
      "Noise model by which the cells of the fast arrays drift; None: they keep their weights.");
    cellFields(f);
  }
  template <class Check>
  void check(const Check &c) const {
    if (!retention_fast) RetentionParams::check(c);
  }
  std::unique_ptr<AnalogDevice> retain(const CompoundSite &site,
                                       std::unique_ptr<AnalogDevice> device) const;
};

}  // namespace pulsora
