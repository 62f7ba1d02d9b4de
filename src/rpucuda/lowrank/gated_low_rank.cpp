#include "lowrank/gated_low_rank.h"

#include <algorithm>

#include "core/buffer.h"
#include "core/check.h"
#include "linalg/math_util.h"
#include "lowrank/functors.h"
#include "lowrank/kernels.h"
#include "lowrank/widened.h"

namespace pulsora {
namespace {

ConstAnyMatrix absent(ElementType type) { return {type, nullptr, 0, 0, 0, 1}; }

/// The sizes of an update whose operands fit.
struct Sizes {
  int64_t m, k1, n, k2;
};

Sizes requireFitting(const char *function, const GatedLowRank &update, const char *outputs,
                     ConstAnyMatrix output) {
  const Sizes s{update.x.rows, update.x.cols, update.v.cols, update.u.rows};
  const ElementType type = update.x.type;
  requireSize(function, "v", update.v, s.k1, s.n);
  requireSize(function, "u", update.u, s.k2, s.n);
  requireSize(function, outputs, output, s.m, s.k2);
  requireType(function, "v", update.v, type);
  requireType(function, "u", update.u, type);
  requireType(function, outputs, output, type);
  const Codes &codes = update.codes;
  if (!codes.data) return s;
  PULSORA_CHECK(InputError,
                codes.cols == s.n && (codes.rows == 0 || codes.rows == s.m) && codes.inner > 0,
                function, ": there are codes for ", codes.rows, " rows of ", codes.cols,
                "; with the other operands there must be codes for ", s.m, " rows of ", s.n);
  PULSORA_CHECK(InputError, codes.type == type, function, ": codes hold ", elementName(codes.type),
                "; they must hold ", elementName(type), ", like x");
  return s;
}

Sizes requireLinear(const GatedLowRank &update, ConstAnyMatrix weight, ConstAnyMatrix bias,
                    AnyMatrix y) {
  constexpr const char *kName = "gatedLowRankLinear";
  const Sizes s = requireFitting(kName, update, "y", y);
  requireSize(kName, "weight", weight, s.k2, s.k1);
  requireType(kName, "weight", weight, update.x.type);
  if (bias.data) {
    requireSize(kName, "bias", bias, 1, s.k2);
    requireType(kName, "bias", bias, update.x.type);
  }
  return s;
}

/// h *= codes * scale for the rows of the batch from `first` on. Returns the factor for the next
/// product: `scale` without codes, where h stays, otherwise 1.
float gate(const Context &context, const Codes &codes, float scale, int64_t first,
           MatrixView<float> h) {
  if (!codes.data) return scale;
  withElement(codes.type, [&](auto element) {
    using T = decltype(element);
    makeElements(context, h.rows, h.cols, CodeGate<T>{CodeReader<T>(codes), first, scale, h});
  });
  return 1.0f;
}

/// Calls body(begin, count) for panels of rows of the batch; at least once, perhaps with an empty
/// panel.
template <class Body>
void inPanels(int64_t rows, int64_t atATime, const Body &body) {
  int64_t begin = 0;
  do {
    const int64_t count = std::min(atATime, rows - begin);
    body(begin, count);
    begin += count;
  } while (begin < rows);
}

/// The gradient of a factor, a sum over all rows of the batch.
class FactorGradient {
 public:
  FactorGradient(const Context &context, AnyMatrix target)
      : context_(context), target_(target), isWanted_(target.data != nullptr) {
    if (isWanted_) sum_ = storage_.view(context, target);
  }

  bool isWanted() const { return isWanted_; }
  /// Adds scale rows^T gated.
  void add(float scale, MatrixView<const float> rows, MatrixView<const float> gated, bool isFirst) {
    if (isWanted_) gemm(context_, scale, rows.transposed(), gated, isFirst ? 0.0f : 1.0f, sum_);
  }
  void finish() {
    if (isWanted_) storage_.finish(context_, absent(target_.type), target_);
  }

 private:
  const Context &context_;
  AnyMatrix target_;
  bool isWanted_;
  Narrowed storage_;
  MatrixView<float> sum_;
};

/// y = base + x weight^T + update, panel by panel in single precision; `base` and `weight` may have
/// no data.
void addInPanels(const Context &context, const GatedLowRank &update, const Sizes &s,
                 ConstAnyMatrix weight, ConstAnyMatrix base, AnyMatrix y) {
  Widened xFloats, vFloats, uFloats, weightFloats;
  Narrowed sums;
  Buffer<float> hidden;
  const MatrixView<const float> v = vFloats.inRows(context, update.v);
  const MatrixView<const float> ut = uFloats.transposedInRows(context, update.u);
  MatrixView<const float> wt;
  if (weight.data) wt = weightFloats.transposedInRows(context, weight);
  inPanels(s.m, rowsAtATime(context, s.k1 + s.k2), [&](int64_t begin, int64_t count) {
    const MatrixView<const float> x = xFloats.of(context, update.x.rowRange(begin, count));
    hidden.reserve(context, count * s.n);
    const MatrixView<float> h = rowMajor(hidden.data(), count, s.n);
    gemm(context, 1.0f, x, v, 0.0f, h);
    const float scale = gate(context, update.codes, update.scale, begin, h);
    const AnyMatrix target = y.rowRange(begin, count);
    const ConstAnyMatrix added = base.rowRange(begin, count);
    const MatrixView<float> sum = sums.view(context, target);
    const bool addsFloats = base.data && target.type == ElementType::Float32;
    if (addsFloats && added.data != target.data) copy(context, added.as<float>(), sum);
    float kept = addsFloats ? 1.0f : 0.0f;
    if (weight.data) {
      gemm(context, 1.0f, x, wt, kept, sum);
      kept = 1.0f;
    }
    gemm(context, scale, h, ut, kept, sum);
    sums.finish(context, added, target);
  });
}

}  // namespace

void gatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                  AnyMatrix y) {
  constexpr const char *kName = "gatedLowRank";
  const Sizes s = requireFitting(kName, update, "y", y);
  if (base.data) {
    requireSize(kName, "base", base, s.m, s.k2);
    requireType(kName, "base", base, update.x.type);
  } else {
    base = absent(update.x.type);
  }
  if (y.size() == 0) return;
  if (!context.onCpu() && cudaGatedLowRank(context, update, base, y)) return;
  addInPanels(context, update, s, absent(update.x.type), base, y);
}

void gatedLowRankLinear(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
                        ConstAnyMatrix bias, AnyMatrix y) {
  const Sizes s = requireLinear(update, weight, bias, y);
  if (y.size() == 0) return;
  if (!context.onCpu() && cudaGatedLowRankLinear(context, update, weight, bias, y)) return;
  ConstAnyMatrix base = absent(update.x.type);
  if (bias.data) base = {bias.type, bias.data, s.m, s.k2, 0, bias.colStride};  // in every row
  addInPanels(context, update, s, weight, base, y);
}

bool gatedLowRankLinearPays(const Context &context, const GatedLowRank &update,
                            ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y) {
  requireLinear(update, weight, bias, y);
  return !context.onCpu() && y.size() > 0 &&
         cudaGatedLowRankLinearPays(context, update, weight, bias, y);
}

int64_t gatedLowRankScratch(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                            const GatedGradients &gradients) {
  return context.onCpu() ? 0 : cudaGatedLowRankScratch(context, update, dy, gradients);
}

void gatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                          const GatedGradients &gradients) {
  constexpr const char *kName = "gatedLowRankBackward";
  const Sizes s = requireFitting(kName, update, "dy", dy);
  const auto requireTarget = [&](const char *name, AnyMatrix target, int64_t rows, int64_t cols) {
    if (!target.data) return;
    requireSize(kName, name, target, rows, cols);
    requireType(kName, name, target, update.x.type);
  };
  requireTarget("dx", gradients.x, s.m, s.k1);
  requireTarget("dv", gradients.v, s.k1, s.n);
  requireTarget("du", gradients.u, s.k2, s.n);
  if (gradients.codes.data) requireSize(kName, "dcodes", gradients.codes, s.m, s.n);
  if (!context.onCpu() && cudaGatedLowRankBackward(context, update, dy, gradients)) return;
  Widened xFloats, vFloats, vtFloats, uFloats, dyFloats;
  Narrowed dxSums;
  Buffer<float> hidden, hiddenGradient;
  FactorGradient dv(context, gradients.v), du(context, gradients.u);
  const bool wantsX = gradients.x.data != nullptr;
  const bool wantsCodes = gradients.codes.data != nullptr;
  const bool needsH = wantsCodes || du.isWanted();
  const bool needsG = wantsCodes || wantsX || dv.isWanted();
  const MatrixView<const float> v = vFloats.inRows(context, update.v);
  const MatrixView<const float> vt =
      context.onCpu() && wantsX ? vtFloats.transposedInRows(context, update.v) : v.transposed();
  const MatrixView<const float> u = uFloats.inRows(context, update.u);
  inPanels(s.m, rowsAtATime(context, s.k1 + s.k2), [&](int64_t begin, int64_t count) {
    const MatrixView<const float> x = xFloats.of(context, update.x.rowRange(begin, count));
    const MatrixView<const float> d = dyFloats.of(context, dy.rowRange(begin, count));
    hidden.reserve(context, count * s.n);
    hiddenGradient.reserve(context, count * s.n);
    const MatrixView<float> h = rowMajor(hidden.data(), count, s.n);
    const MatrixView<float> g = rowMajor(hiddenGradient.data(), count, s.n);
    if (needsH) gemm(context, 1.0f, x, v, 0.0f, h);
    if (needsG) gemm(context, 1.0f, d, u, 0.0f, g);
    if (wantsCodes) {
      const MatrixView<float> to = gradients.codes.block(begin, 0, count, s.n);
      makeElements(context, count, s.n, CodeGradient{h, g, update.scale, to});
    }
    float scale = update.scale;
    if (needsH) scale = gate(context, update.codes, update.scale, begin, h);
    if (needsG) scale = gate(context, update.codes, update.scale, begin, g);
    if (wantsX) {
      const AnyMatrix target = gradients.x.rowRange(begin, count);
      gemm(context, scale, g, vt, 0.0f, dxSums.view(context, target));
      dxSums.finish(context, absent(target.type), target);
    }
    dv.add(scale, x, g, begin == 0);
    du.add(scale, d, h, begin == 0);
  });
  dv.finish();
  du.finish();
}

}  // namespace pulsora
