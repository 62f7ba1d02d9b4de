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

void requireRange(const char *name, int64_t value, int64_t least, int64_t most) {
  PULSORA_CHECK(InputError, value >= least && value <= most, "rollout: ", name, " is ", value,
                "; it must be from ", least, " to ", most);
}

/// The rollout of one member, with memory of its own.
class Member {
 public:
  Member(const Context &context, const EnsembleShape &s, const EnsembleWeights &w, int64_t e,
         int64_t rows)
      : context_(context),
        s_(s),
        rows_(rows),
        encoder_(w.encoder + e * s.inputs * s.encoded),
        encoderBias_(w.encoderBias + e * s.encoded),
        input_(rowMajor(w.input + e * s.encoded * 3 * s.hidden, s.encoded, 3 * s.hidden)),
        recurrent_(rowMajor(w.recurrent + e * s.hidden * 3 * s.hidden, s.hidden, 3 * s.hidden)),
        bias_(w.bias + e * 3 * s.hidden),
        candidateBias_(s.resetAfter ? w.candidateBias + e * s.hidden : nullptr),
        heads_(rowMajor(w.heads + e * s.hidden * 2, s.hidden, int64_t{2})),
        logVarianceBias_(w.logVarianceBias + e),
        pre_(context, rows * s.encoded),
        x_(context, rows * s.encoded),
        in_(context, rows * 3 * s.hidden),
        product_(context, rows * 3 * s.hidden),
        z_(context, rows * s.hidden),
        resetH_(context, rows * s.hidden),
        read_(context, rows * 2),
        increment_(Buffer<float>::zeros(context, rows)),
        sum_(Buffer<float>::zeros(context, rows)),
        states_{Buffer<float>::zeros(context, rows * s.hidden),
                Buffer<float>(context, rows * s.hidden)} {}

  void run(MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
           const RolloutOutputs &out) {
    const auto pre = rowMajor(pre_.data(), rows_, s_.encoded);
    affine(context_, features, rowMajor(encoder_, s_.inputs, s_.encoded), encoderBias_, pre);
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
  MatrixView<float> state(int which) { return rowMajor(states_[which].data(), rows_, s_.hidden); }
  MatrixView<const float> state(const float *data) const {
    return rowMajor(data, rows_, s_.hidden);
  }

  void takeInput(bool fedBack) {
    const auto x = rowMajor(x_.data(), rows_, s_.encoded);
    const Encoded encoded{rowMajor<const float>(pre_.data(), rows_, s_.encoded),
                          fedBack ? increment_.data() : nullptr, encoder_, x};
    pulsora::run(context_, &GruKernels::encoded, encoded, rows_, s_.encoded);
    affine(context_, x, input_, bias_, rowMajor(in_.data(), rows_, 3 * s_.hidden));
  }

  void step(MatrixView<const float> from, MatrixView<float> to) {
    const int64_t size = s_.hidden;
    const auto in = rowMajor<const float>(in_.data(), rows_, 3 * size);
    if (s_.resetAfter) {
      const auto product = rowMajor(product_.data(), rows_, 3 * size);
      gemm(context_, 1.0f, from, recurrent_, 0.0f, product);
      const StepAfter after{in, product, candidateBias_, from, to};
      pulsora::run(context_, &GruKernels::stepAfter, after, rows_, size);
      return;
    }
    const auto product = rowMajor(product_.data(), rows_, 2 * size);
    gemm(context_, 1.0f, from, recurrent_.block(0, 0, size, 2 * size), 0.0f, product);
    const auto z = rowMajor(z_.data(), rows_, size);
    const auto resetH = rowMajor(resetH_.data(), rows_, size);
    pulsora::run(context_, &GruKernels::gatesBefore, GatesBefore{in, product, from, z, resetH},
                 rows_, size);
    const auto candidate = rowMajor(product_.data(), rows_, size);
    gemm(context_, 1.0f, resetH, recurrent_.block(0, 2 * size, size, size), 0.0f, candidate);
    pulsora::run(context_, &GruKernels::stepBefore, StepBefore{in, candidate, z, from, to}, rows_,
                 size);
  }

  /// Writes the outputs of step j (from 0).
  void keep(MatrixView<const float> h, int64_t j, int64_t steps, const RolloutOutputs &out) {
    gemm(context_, 1.0f, h, heads_, 0.0f, rowMajor(read_.data(), rows_, int64_t{2}));
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
  int64_t rows_;
  const float *encoder_, *encoderBias_;
  MatrixView<const float> input_, recurrent_;
  const float *bias_, *candidateBias_;
  MatrixView<const float> heads_;
  const float *logVarianceBias_;
  Buffer<float> pre_, x_, in_, product_, z_, resetH_, read_, increment_, sum_;
  Buffer<float> states_[2];
};

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
             const RolloutOutputs &out) {
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
  const int64_t rows = features.rows;
  if (rows == 0) return;
  if (inOneLaunch(context) &&
      cudaRollout(context, shape, weights, features, first, steps, feedback, out)) {
    return;
  }
  // Rows [begin, end) of member e.
  const auto roll = [&](const Context &own, int64_t e, int64_t begin, int64_t end) {
    const int64_t row = e * rows + begin;
    const auto at = [&](float *all, int64_t each) { return all ? all + row * each : nullptr; };
    const auto part = features.block(begin, 0, end - begin, features.cols);
    Member(own, shape, weights, e, end - begin)
        .run(part, first ? first + row * shape.hidden : nullptr, steps, feedback,
             {at(out.states, steps * shape.hidden), at(out.last, shape.hidden), at(out.mean, steps),
              at(out.logVariance, steps)});
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
