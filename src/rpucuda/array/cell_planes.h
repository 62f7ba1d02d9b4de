#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array/device_model.h"
#include "core/buffer.h"
#include "core/context.h"
#include "core/scratch.h"
#include "numerics/random.h"
#include "storage/state.h"

namespace pulsora {

/// The sampled parameters of an array's cells: planes of half floats, one for each member of the
/// model's Cell, and one for each parameter of events that differs between cells. They are stored,
/// or computed: a CellLoan draws them by the key into memory of the operation's arena.
class CellPlanes {
 public:
  /// Samples the cells by `key`; if they are to be stored, at once.
  CellPlanes(const Context &context, const DeviceParams &params, int64_t rows, int64_t cols,
             RandomKey key, bool computed);

  bool areStored() const { return areStored_; }
  /// Bytes that stay between operations.
  size_t memoryBytes() const { return stored_.bytes(); }
  /// Reserves the memory of CellLoans in the context's operation, which then cannot run out of it.
  void reserve(const Context &context) const;

  /// Lets cells be computed from now on. Cells that are not those that the key draws stay stored.
  void computeFromNowOn(const Context &context);

  /// Whether a tensor or a value of a state describes cells, so that all of a kind come together:
  /// tensors of stored cells, or the value drawn() of computed ones.
  static bool isOf(const std::string &name);
  /// The name of the value that a state of computed cells has in the place of this tensor or value
  /// of cells.
  static std::string drawn(const std::string &name);
  /// The name of the tensor that every state of stored cells has in the place of this value.
  static std::string stored(const std::string &drawn);

  /// Writes the tensors `<prefix>cells`, ..., or of computed cells their key and checksum.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  /// Reads what saveTo() wrote. Cells that are to be computed are stored from now on if the state
  /// has others than the key draws. StateError if it has only a key, which draws other cells than
  /// were saved.
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  friend class CellLoan;
  enum Part { kCells, kDecayRates, kDiffusions, kResets, kParts };

  int64_t countOf(Part part) const { return begins_[part + 1] - begins_[part]; }
  int64_t count() const { return begins_[kParts] * rows_ * cols_; }
  /// Address of a part, null if it has no planes.
  template <class Half>
  Half *partOf(Half *planes, Part part) const {
    return countOf(part) > 0 ? planes + begins_[part] * rows_ * cols_ : nullptr;
  }
  void draw(const Context &context, RandomKey key, uint16_t *planes) const;
  const uint16_t *lend(const Context &context) const;
  uint64_t checksumOfLent(const Context &context) const;
  std::vector<int64_t> shapeOf(Part part) const;
  template <class Use>
  void eachSaved(const State &state, const std::string &prefix, const Use &use) const;
  void loadDrawn(const Context &context, const Value &saved, const std::string &prefix);
  bool computeIfDrawn(const Context &context, const std::vector<uint16_t> &planes,
                      Buffer<uint16_t> &fresh);
  void compute(RandomKey key, uint64_t checksum);

  DeviceParams params_;
  int64_t rows_;
  int64_t cols_;
  RandomKey key_;
  int64_t begins_[kParts + 1] = {};  // of the parts, in planes
  bool areComputed_;                 // if they may be
  bool areStored_;
  Buffer<uint16_t> stored_;
  mutable ScratchBuffer<uint16_t> lent_;
  mutable uint64_t lentIn_ = 0;               // the operation that has drawn into lent_
  mutable std::optional<uint64_t> checksum_;  // of computed cells, once it was asked for
};

/// The planes of an array's cells from construction to destruction. Within an operation, those that
/// are computed are drawn once and stay until its end; otherwise until the end of the loan.
class CellLoan {
 public:
  CellLoan(const Context &context, const CellPlanes &planes);

  const uint16_t *cells() const { return part(CellPlanes::kCells); }
  // Relative values of events (array/pulsed_kernels.h); null where cells agree.
  const uint16_t *decayRates() const { return part(CellPlanes::kDecayRates); }
  const uint16_t *diffusions() const { return part(CellPlanes::kDiffusions); }
  const uint16_t *resets() const { return part(CellPlanes::kResets); }

 private:
  const uint16_t *part(CellPlanes::Part part) const { return planes_.partOf(data_, part); }

  const CellPlanes &planes_;
  std::optional<Context> own_;
  std::optional<ScratchOperation> operation_;  // if there is none
  const uint16_t *data_;
};

}  // namespace pulsora
