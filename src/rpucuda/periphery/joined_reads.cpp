#include "periphery/joined_reads.h"

#include "core/backend.h"
#include "core/math_util.h"
#include "core/with_isa.h"
#include "periphery/gpu_read.h"
#include "periphery/joined_functors.h"
#include "periphery/read_kernels.h"

namespace RPU {
namespace {

// Whether a chain can share the launches of the read that it is added to.
bool sharesLaunches(const Context &context, const ArrayRead &base, const ChainedRead &chain) {
  return !chain.gate.data && !chain.ungated.data && chain.inner.cols <= kFewLines &&
         base.read.canBeJoined(context) && chain.first.read.canBeJoined(context) &&
         chain.second.read.canBeJoined(context);
}

void add(const Context &context, const ScaledAdder &adder) {
  if (!context.onCpu()) {
    forEach(context, adder.to.size(), adder);
    return;
  }
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &addRows<isa>; });
  const int64_t grain = 1 + kStepsPerThread / (adder.to.cols + 1);
  parallelRange(context, adder.to.rows, grain,
                [&](int64_t begin, int64_t end) { kernel(adder, begin, end); });
}

}  // namespace

void reserveChain(const Context &context, const ChainedRead &chain, MatrixView<float> out,
                  Buffer<float> &scratch) {
  chain.first.read.reserve(context, chain.first.weights, out.rows);
  chain.second.read.reserve(context, chain.second.weights, out.rows);
  scratch.reserve(context, out.size());
}

void addChain(const Context &context, const ChainedRead &chain, MatrixView<const float> in,
              MatrixView<float> out, uint64_t firstSample, Buffer<float> &scratch) {
  reserveChain(context, chain, out, scratch);
  chain.first.read.run(context, chain.first.weights, in, chain.inner, firstSample);
  if (chain.ungated.data) copy(context, chain.inner, chain.ungated);
  if (chain.gate.data)
    forEach(context, chain.inner.size(), GateMultiplier{chain.gate, chain.inner.data});
  const MatrixView<float> product = rowMajor(scratch.data(), out.rows, out.cols);
  chain.second.read.run(context, chain.second.weights, chain.inner, product, firstSample);
  add(context, {product.data, chain.factor, out});
}

void readTogether(const Context &context, const ArrayRead &base, const ChainedRead *chains,
                  int count, MatrixView<const float> in, MatrixView<float> out,
                  uint64_t firstSample, Buffer<float> &scratch) {
  if (in.rows == 0) return;
  int next = 0;
  if (count > 0 && sharesLaunches(context, base, chains[0])) {
    const ChainedRead &chain = chains[next++];
    const PlainRead first =
        chain.first.read.plan(context, chain.first.weights, in, chain.inner, firstSample);
    const MatrixView<float> nowhere = rowMajor<float>(nullptr, out.rows, out.cols);
    const AddedRead added{
        chain.second.read.plan(context, chain.second.weights, chain.inner, nowhere, firstSample),
        chain.factor};
    readWith(context, base.read.plan(context, base.weights, in, out, firstSample), first, added,
             base.read.marks());
  } else {
    // A read may change a running mean, so that all must have their storage before the first.
    base.read.reserve(context, base.weights, in.rows);
    for (int i = 0; i < count; ++i) reserveChain(context, chains[i], out, scratch);
    base.read.run(context, base.weights, in, out, firstSample);
  }
  for (; next < count; ++next) addChain(context, chains[next], in, out, firstSample, scratch);
}

}  // namespace RPU
