#include "array/events.h"
#include "core/backend.h"
#include "linalg/initialise.h"
#include "linalg/math_util.h"
#include "lrtt/adapter.h"
#include "lrtt/functors.h"
#include "lrtt/reinit.h"

// Writes of A and B: by callers, and to re-initialise.

namespace pulsora {

void LRTTAdapter::write(const Context &context, PulsedDevice &array,
                        MatrixView<const float> target) {
  if (settings_.params.reinit_write == ReinitWrite::Pulsed) {
    writer_.write(context, array, target, writes_++);
  } else {
    array.setWeights(context, target, ownWrite(writes_++));
  }
}

void LRTTAdapter::reserveReinit(const Context &context) {
  const ReinitScheme &scheme = reinitScheme(settings_.params.reinit);
  a_.cells().reserveCells(context);
  b_.cells().reserveCells(context);
  if (scheme.after == ReinitScheme::AfterTransfer::Nothing) return;
  if (scheme.after != ReinitScheme::AfterTransfer::KeepB) newB_.reserve(context, b_.cells().size());
  if (scheme.worksOnHost) rows_.reserve(b_.cells().size());
  if (settings_.keepsRest()) rest_.reserve(context, a_.rows(), a_.cols());
  if (settings_.params.reinit_write == ReinitWrite::Pulsed) {
    writer_.reserve(context, a_.cells());
    writer_.reserve(context, b_.cells());
  }
}

void LRTTAdapter::reinit(const Context &context) {
  reserveReinit(context);
  arraysReplaced();
  switch (reinitScheme(settings_.params.reinit).after) {
    case ReinitScheme::AfterTransfer::Nothing:
      return;
    case ReinitScheme::AfterTransfer::KeepB:
      startA(context);
      break;
    case ReinitScheme::AfterTransfer::DecayB:
      startA(context);
      forEach(context, b_.cells().size(),
              ScaledCopier{b_.weights(), settings_.params.reinit_decay, newB_.data()});
      write(context, b_.cells(), rowMajor<const float>(newB_.data(), b_.rows(), b_.cols()));
      break;
    case ReinitScheme::AfterTransfer::DrawB:
      startA(context);
      accumulated_.reset(context);  // accumulated for the previous directions of B
      startB(context);
      break;
  }
  ++reinits_;
}

void LRTTAdapter::keepRest(const Context &context, MatrixView<const float> missing,
                           float tolerance) {
  const MatrixView<const float> rest = settings_.params.swap_xd ? missing.transposed() : missing;
  const double scale = 1.0 / static_cast<double>(settings_.transferLr);
  if (signs_.empty()) {
    write(context, a_.cells(), rest_.fit(context, rest, b_.weights(), scale, nullptr, tolerance));
    return;
  }
  takeSigns(context);
  write(context, a_.cells(),
        rest_.fit(context, rest, b_.weights(), scale, signs_.data(), tolerance));
  turnA(context, signs_.data());
}

// B <- the re-init scheme's draw.
void LRTTAdapter::startB(const Context &context) {
  newB_.reserve(context, b_.cells().size());
  const MatrixView<float> target = rowMajor(newB_.data(), b_.rows(), b_.cols());
  const auto vectors = rowMajor<const float>(reinitVectors_.data(), b_.rows(), b_.cols());
  reinitScheme(settings_.params.reinit)
      .draw(context, settings_, {reinitKey_, reinits_, vectors, rows_}, target);
  write(context, b_.cells(), target);
}

// A <- 0, and new signs.
void LRTTAdapter::startA(const Context &context) {
  if (signs_.empty()) {
    write(context, a_.cells(), zeros());
    return;
  }
  takeSigns(context);
  write(context, a_.cells(), zeros());
  forEach(context, settings_.rank,
          SignDrawer{chopperKey_, reinits_, settings_.params.chopper_prob, signs_.data()});
  turnA(context, signs_.data());
}

// Keeps the signs of A in signs_ and makes them 1, because write() may pulse the cells themselves.
void LRTTAdapter::takeSigns(const Context &context) {
  copy(context, rowMajor(a().columnSigns(), 1, settings_.rank),
       rowMajor(signs_.data(), 1, settings_.rank));
  turnA(context, signs_.data());
}

void LRTTAdapter::turnA(const Context &context, const float *factors) {
  a_.cells().turnColumns(context, factors);
  accumulated_.turnA(context, factors);
}

// Zeros of A's shape.
MatrixView<const float> LRTTAdapter::zeros() const {
  return {zero_.data(), a_.rows(), a_.cols(), 0, 0};
}

void LRTTAdapter::clear(const Context &context) { setWeights(context, a_, zeros()); }

void LRTTAdapter::setWeights(const Context &context, Crossbar &array,
                             MatrixView<const float> weights) {
  array.cells().setWeights(context, weights, ownWrite(writes_));
  ++writes_;
  accumulated_.reset(context);
  arraysReplaced();
}

void LRTTAdapter::setReinitVectors(const Context &context, MatrixView<const float> vectors) {
  PULSORA_CHECK(ConfigError, reinitScheme(settings_.params.reinit).needsVectors,
                "re-init vectors were handed in, but lrtt.reinit is '",
                nameOf(settings_.params.reinit), "'; set it to 'svd'");
  PULSORA_CHECK(InputError, vectors.rows == b_.rows() && vectors.cols == b_.cols(),
                "re-init vectors have shape [", vectors.rows, ", ", vectors.cols,
                "]; lrtt.rank and the tile ask for [", b_.rows(), ", ", b_.cols(), "]");
  reserveReinit(context);
  copy(context, vectors, rowMajor(reinitVectors_.data(), b_.rows(), b_.cols()));
  reinitVectorsSet_ = true;
  startB(context);
  accumulated_.reset(context);
  arraysReplaced();
}

}  // namespace pulsora
