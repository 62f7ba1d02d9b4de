#include "forecast/rollout.h"

#include <algorithm>
#include <cmath>

#include "core/backend.h"
#include "core/buffer.h"
#include "core/isa_dispatch.h"
#include "forecast/gru_kernels.h"
#include "linalg/math_util.h"
#include "linalg/product.h"

namespace pulsora {
namespace {

const GruKernels &kernels(Isa isa) {
  return *withIsa(isa, [](auto i) { return &gruKernels<i>(); });
}

/// Runs a functor over the rows of a matrix: on the CPU, by the kernel of the context's instruction
/// set.
template <class Functor>
void run(const Context &context, void (*GruKernels::*kernel)(const Functor &, int64_t),
         const Functor &functor, int64_t rows, int64_t cols) {
  if (context.onCpu()) {
    (kernels(context.cpu.isa).*kernel)(functor, rows);
  } else {
    forEach(context, rows * cols, functor);
  }
}

/// Whether sums may have another order than on the CPU.
bool inOneLaunch(const Context &context) {
  return !context.onCpu() && context.gpuProducts == GpuProducts::Single;
}

/// rows of `out` = bias + x weights.
void affine(const Context &context, MatrixView<const float> x, MatrixView<const float> weights,
            const float *bias, MatrixView<float> out) {
  copy(context, MatrixView<const float>(bias, out.rows, out.cols, 0, 1), out);
  gemm(context, 1.0f, x, weights, 1.0f, out);
}

/// Rounds to 16 bits in place if asked for.
void roundIf(bool half, const Context &context, MatrixView<float> values) {
  if (half) forEach(context, values.size(), RoundedToHalf{values, values});
}

void requireRange(const char *name, int64_t value, int64_t least, int64_t most) {
  PULSORA_CHECK(InputError, value >= least && value <= most, "rollout: ", name, " is ", value,
                "; it must be from ", least, " to ", most);
}

/// The rollout of one member, with memory of its own.
class Member {
 public:
  Member(const Context &context, const EnsembleShape &s, const EnsembleWeights &w, int64_t e,
         int64_t firstRow, int64_t rows, const RolloutOptions &options)
      : context_(context),
        s_(s),
        options_(options),
        member_(e),
        firstRow_(firstRow),
        rows_(rows),
        encoder_(w.encoder + e * s.inputs * s.encoded),
        encoderBias_(w.encoderBias + e * s.encoded),
        input_(rowMajor(w.input + e * s.encoded * 3 * s.hidden, s.encoded, 3 * s.hidden)),
        recurrent_(rowMajor(w.recurrent + e * s.hidden * 3 * s.hidden, s.hidden, 3 * s.hidden)),
        bias_(w.bias + e * 3 * s.hidden),
        candidateBias_(s.resetAfter ? w.candidateBias + e * s.hidden : nullptr),
        heads_(rowMajor(w.heads + e * s.hidden * 2, s.hidden, int64_t{2})),
        logVarianceBias_(w.logVarianceBias + e),
        gain_(s.normalised ? w.stateGain + e * s.hidden : nullptr),
        shift_(s.normalised ? w.stateShift + e * s.hidden : nullptr),
        projection_(rowMajor(s.predicted ? w.projection + e * s.hidden * s.predicted : nullptr,
                             s.hidden, s.predicted)),
        projectionBias_(s.predicted ? w.projectionBias + e * s.predicted : nullptr),
        pre_(context, rows * s.encoded),
        x_(context, rows * s.encoded),
        in_(context, rows * 3 * s.hidden),
        product_(context, rows * 3 * s.hidden),
        z_(context, rows * s.hidden),
        resetH_(context, rows * s.hidden),
        read_(context, rows * 2),
        rounded_(context, options.half ? rows * pulsora::max(s.hidden, s.inputs) : 0),
        seen_(context, readsState() ? 0 : rows * s.hidden),
        increment_(Buffer<float>::zeros(context, rows)),
        sum_(Buffer<float>::zeros(context, rows)),
        states_{Buffer<float>::zeros(context, rows * s.hidden),
                Buffer<float>(context, rows * s.hidden)} {}

  void run(MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
           const RolloutOutputs &out) {
    const auto pre = rowMajor(pre_.data(), rows_, s_.encoded);
    affine(context_, operand(features), rowMajor(encoder_, s_.inputs, s_.encoded), encoderBias_,
           pre);
    if (first) copy(context_, state(first), state(0));
    for (int64_t j = 0; j < steps; ++j) {
      if (j == 0 || feedback) takeInput(j > 0);
      const int from = static_cast<int>(j % 2);
      step(state(from), state(1 - from));
      keep(state(1 - from), j, steps, out);
    }
    if (out.last) {
      copy(context_, state(static_cast<int>(steps % 2)), rowMajor(out.last, rows_, s_.hidden));
    }
  }

 private:
  /// Whether heads read the state as it is.
  bool readsState() const { return !s_.normalised && options_.dropout == 0.0f && !options_.half; }

  /// The operand of a product: `values`, rounded if asked for.
  MatrixView<const float> operand(MatrixView<const float> values) {
    if (!options_.half) return values;
    const auto to = rowMajor(rounded_.data(), values.rows, values.cols);
    forEach(context_, to.size(), RoundedToHalf{values, to});
    return to;
  }

  void drop(MatrixView<float> values, int64_t firstUnit) {
    if (options_.dropout == 0.0f) return;
    const DropoutMask mask = dropoutMask(options_, member_, firstRow_, firstUnit);
    forEach(context_, values.size(), Dropped{mask, values, 1});
  }

  /// The operand y of heads and projection, from the states h.
  MatrixView<const float> read(MatrixView<const float> h, MatrixView<float> to) {
    if (readsState()) return h;
    if (s_.normalised) {
      forEach(context_, h.rows, NormalisedRow{h, gain_, shift_, to});
    } else {
      copy(context_, h, to);
    }
    drop(to, s_.encoded);
    roundIf(options_.half, context_, to);
    return to;
  }

  void project(MatrixView<const float> y, MatrixView<float> to) {
    affine(context_, y, projection_, projectionBias_, to);
  }

  MatrixView<float> state(int which) { return rowMajor(states_[which].data(), rows_, s_.hidden); }
  MatrixView<const float> state(const float *data) const {
    return rowMajor(data, rows_, s_.hidden);
  }

  void takeInput(bool fedBack) {
    const auto x = rowMajor(x_.data(), rows_, s_.encoded);
    const Encoded encoded{rowMajor<const float>(pre_.data(), rows_, s_.encoded),
                          fedBack ? increment_.data() : nullptr, encoder_, x};
    pulsora::run(context_, &GruKernels::encoded, encoded, rows_, s_.encoded);
    drop(x, 0);
    roundIf(options_.half, context_, x);
    affine(context_, x, input_, bias_, rowMajor(in_.data(), rows_, 3 * s_.hidden));
  }

  void step(MatrixView<const float> from, MatrixView<float> to) {
    const int64_t size = s_.hidden;
    const auto in = rowMajor<const float>(in_.data(), rows_, 3 * size);
    if (s_.resetAfter) {
      const auto product = rowMajor(product_.data(), rows_, 3 * size);
      gemm(context_, 1.0f, operand(from), recurrent_, 0.0f, product);
      const StepAfter after{in, product, candidateBias_, from, to};
      pulsora::run(context_, &GruKernels::stepAfter, after, rows_, size);
      return;
    }
    const auto product = rowMajor(product_.data(), rows_, 2 * size);
    gemm(context_, 1.0f, operand(from), recurrent_.block(0, 0, size, 2 * size), 0.0f, product);
    const auto z = rowMajor(z_.data(), rows_, size);
    const auto resetH = rowMajor(resetH_.data(), rows_, size);
    pulsora::run(context_, &GruKernels::gatesBefore, GatesBefore{in, product, from, z, resetH},
                 rows_, size);
    roundIf(options_.half, context_, resetH);
    const auto candidate = rowMajor(product_.data(), rows_, size);
    gemm(context_, 1.0f, resetH, recurrent_.block(0, 2 * size, size, size), 0.0f, candidate);
    pulsora::run(context_, &GruKernels::stepBefore, StepBefore{in, candidate, z, from, to}, rows_,
                 size);
  }

  /// Writes the outputs of step j (from 0).
  void keep(MatrixView<const float> h, int64_t j, int64_t steps, const RolloutOutputs &out) {
    const auto y = read(h, rowMajor(seen_.data(), rows_, s_.hidden));
    gemm(context_, 1.0f, y, heads_, 0.0f, rowMajor(read_.data(), rows_, int64_t{2}));
    if (out.predicted) {
      const int64_t width = s_.predicted;
      project(y, rowMajor(out.predicted + j * width, rows_, width, steps * width));
    }
    forEach(context_, rows_,
            Heads{rowMajor<const float>(read_.data(), rows_, 2), logVarianceBias_,
                  static_cast<float>(std::log(static_cast<double>(j + 1))), increment_.data(),
                  sum_.data(), out.mean ? out.mean + j : nullptr,
                  out.logVariance ? out.logVariance + j : nullptr, steps});
    if (out.states) {
      copy(context_, h, rowMajor(out.states + j * h.cols, rows_, h.cols, steps * h.cols));
    }
  }

  const Context &context_;
  EnsembleShape s_;
  RolloutOptions options_;
  int64_t member_, firstRow_, rows_;
  const float *encoder_, *encoderBias_;
  MatrixView<const float> input_, recurrent_;
  const float *bias_, *candidateBias_;
  MatrixView<const float> heads_;
  const float *logVarianceBias_;
  const float *gain_, *shift_;
  MatrixView<const float> projection_;
  const float *projectionBias_;
  Buffer<float> pre_, x_, in_, product_, z_, resetH_, read_, rounded_, seen_, increment_, sum_;
  Buffer<float> states_[2];
};

/// Checks the optional parts of an ensemble, and the options.
void requireParts(const EnsembleShape &s, const EnsembleWeights &w, const RolloutOptions &o) {
  PULSORA_CHECK(InputError, !s.normalised || (w.stateGain && w.stateShift),
                "rollout: a normalised state needs stateGain and stateShift");
  requireRange("predicted", s.predicted, 0, int64_t{1} << 20);
  PULSORA_CHECK(InputError, s.predicted == 0 || (w.projection && w.projectionBias),
                "rollout: predicted states need projection and projectionBias");
  PULSORA_CHECK(InputError, o.dropout >= 0.0f && o.dropout < 1.0f, "rollout: dropout is ",
                o.dropout, "; it must be at least 0 and below 1");
  requireRange("rowsPerSample", o.rowsPerSample, 0, kMaxSample);
}

/// A rollout of a GPU in one launch, followed by the products that give predicted states. False if
/// there is no such launch.
bool rollOutInOneLaunch(const Context &context, const EnsembleShape &s, const EnsembleWeights &w,
                        MatrixView<const float> features, const float *first, int64_t steps,
                        bool feedback, const RolloutOutputs &out, const RolloutOptions &options) {
  const int64_t rows = features.rows * steps;
  RolloutOutputs made = out;
  Buffer<float> states(context, out.predicted && !out.states ? s.members * rows * s.hidden : 0);
  if (out.predicted && !out.states) made.states = states.data();
  if (!cudaRollout(context, s, w, features, first, steps, feedback, made, options)) return false;
  if (!out.predicted) return true;
  Buffer<float> seen(context, rows * s.hidden);
  const auto y = rowMajor(seen.data(), rows, s.hidden);
  for (int64_t e = 0; e < s.members; ++e) {
    copy(context, rowMajor<const float>(made.states + e * rows * s.hidden, rows, s.hidden), y);
    if (options.dropout > 0.0f) {
      forEach(context, y.size(), Dropped{dropoutMask(options, e, 0, s.encoded), y, steps});
    }
    roundIf(options.half, context, y);
    affine(context, y, rowMajor(w.projection + e * s.hidden * s.predicted, s.hidden, s.predicted),
           w.projectionBias + e * s.predicted,
           rowMajor(out.predicted + e * rows * s.predicted, rows, s.predicted));
  }
  return true;
}

}  // namespace

void encode(const Context &context, MatrixView<const float> x, MatrixView<const float> encoder,
            VectorView<const float> bias, MatrixView<float> out) {
  checkProduct("encode", x, encoder, out);
  PULSORA_CHECK(InputError, bias.size == out.cols && bias.isContiguous(), "encode: the bias has ",
                bias.size, " elements; it needs ", out.cols, " adjacent ones, one for each output");
  if (out.rows == 0) return;
  if (inOneLaunch(context) && cudaEncode(context, x, encoder, bias, out)) return;
  affine(context, x, encoder, bias.data, out);
  run(context, &GruKernels::encoded, Encoded{out, nullptr, nullptr, out}, out.rows, out.cols);
}

void rollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
             MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
             const RolloutOutputs &out, const RolloutOptions &given) {
  constexpr int64_t kMost = int64_t{1} << 20;
  requireRange("members", shape.members, 1, kMost);
  requireRange("inputs", shape.inputs, 1, kMost);
  requireRange("encoded", shape.encoded, 1, kMost);
  requireRange("hidden", shape.hidden, 1, kMostHidden);
  requireRange("steps", steps, 1, kMostSteps);
  PULSORA_CHECK(InputError, features.cols == shape.inputs, "rollout: features have ", features.cols,
                " columns; the encoder takes ", shape.inputs);
  PULSORA_CHECK(InputError, !shape.resetAfter || weights.candidateBias,
                "rollout: a unit that resets after the product needs candidateBias");
  requireParts(shape, weights, given);
  const int64_t rows = features.rows;
  if (rows == 0) return;
  RolloutOptions options = given;
  if (options.rowsPerSample == 0) options.rowsPerSample = rows;
  if (inOneLaunch(context) &&
      rollOutInOneLaunch(context, shape, weights, features, first, steps, feedback, out, options)) {
    return;
  }
  // Rows [begin, end) of member e.
  const auto roll = [&](const Context &own, int64_t e, int64_t begin, int64_t end) {
    const int64_t row = e * rows + begin;
    const auto at = [&](float *all, int64_t each) { return all ? all + row * each : nullptr; };
    const auto part = features.block(begin, 0, end - begin, features.cols);
    Member(own, shape, weights, e, begin, end - begin, options)
        .run(part, first ? first + row * shape.hidden : nullptr, steps, feedback,
             {at(out.states, steps * shape.hidden), at(out.last, shape.hidden), at(out.mean, steps),
              at(out.logVariance, steps), at(out.predicted, steps * shape.predicted)});
  };
  if (!context.onCpu()) {
    for (int64_t e = 0; e < shape.members; ++e) roll(context, e, 0, rows);
    return;
  }
  Context single = context;  // threads share parts of members, so that a product has one thread
  single.cpu.threads = 1;
  const int64_t threads = context.cpu.threads;
  const int64_t parts = shape.members % threads == 0 ? 1 : std::min(threads, rows);
  parallelRange(context, shape.members * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % parts;
      roll(single, i / parts, rows * part / parts, rows * (part + 1) / parts);
    }
  });
}

}  // namespace pulsora
