#include "periphery/additive_reads.h"

#include <algorithm>

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/math_util.h"
#include "periphery/gpu_read.h"
#include "periphery/read_by_rows.h"
#include "periphery/read_kernels.h"

namespace pulsora {
namespace {

// Whether a chain can share the launches of the read that it is added to.
bool sharesLaunches(const Context &context, const ArrayRead &base, const ChainedRead &chain) {
  return !chain.gate.data && !chain.ungated.data && chain.inner.cols <= kFewLines &&
         base.read.canBeBatchedWith(context, chain.first.read) &&
         base.read.canBeBatchedWith(context, chain.second.read);
}

// out += factor * second(gate .* first(in)), for rows [firstRow, firstRow + in.rows) of a
// mini-batch; `product` holds [in.rows, out.cols].
void addRows(const Context &context, const ChainedRead &chain, MatrixView<const float> in,
             MatrixView<float> out, uint64_t firstSample, float *product, int64_t firstRow) {
  chain.first.read.runRows(context, chain.first.weights, in, chain.inner, firstSample, firstRow);
  if (chain.ungated.data) copy(context, chain.inner, chain.ungated);
  if (chain.gate.data)
    forEach(context, chain.inner.size(), GateMultiplier{chain.gate, chain.inner.data});
  chain.second.read.runRows(context, chain.second.weights, chain.inner,
                            rowMajor(product, out.rows, out.cols), firstSample, firstRow);
  addScaled(context, {product, chain.factor, out});
}

bool rowsAreApart(const Context &context, const ArrayRead &base, const ChainedRead *chains,
                  int count) {
  return base.read.rowsAreApart(context) &&
         std::all_of(chains, chains + count, [&](const ChainedRead &chain) {
           return chain.first.read.rowsAreApart(context) && chain.second.read.rowsAreApart(context);
         });
}

int64_t stepsOfRow(const ArrayRead &base, const ChainedRead *chains, int count) {
  int64_t steps = base.read.stepsOfRow();
  for (int i = 0; i < count; ++i)
    steps += chains[i].first.read.stepsOfRow() + chains[i].second.read.stepsOfRow();
  return steps;
}

}  // namespace

void addScaled(const Context &context, const ScaledAdder &adder) {
  if (!context.onCpu()) {
    forEach(context, adder.to.size(), adder);
    return;
  }
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &addRows<isa>; });
  const int64_t grain = 1 + kStepsPerThread / (adder.to.cols + 1);
  parallelRange(context, adder.to.rows, grain,
                [&](int64_t begin, int64_t end) { kernel(adder, begin, end); });
}

void reserveChain(const Context &context, const ChainedRead &chain, MatrixView<float> out,
                  ScratchBuffer<float> &scratch) {
  chain.first.read.reserve(context, chain.first.weights, out.rows);
  chain.second.read.reserve(context, chain.second.weights, out.rows);
  scratch.reserve(context, out.size());
}

void addChain(const Context &context, const ChainedRead &chain, MatrixView<const float> in,
              MatrixView<float> out, uint64_t firstSample, ScratchBuffer<float> &scratch) {
  reserveChain(context, chain, out, scratch);
  addRows(context, chain, in, out, firstSample, scratch.data(), 0);
}

void readTogether(const Context &context, const ArrayRead &base, const ChainedRead *chains,
                  int count, MatrixView<const float> in, MatrixView<float> out,
                  uint64_t firstSample, ScratchBuffer<float> &scratch) {
  if (in.rows == 0) return;
  if (count > 0 && sharesLaunches(context, base, chains[0])) {
    const ChainedRead &chain = chains[0];
    const PlainRead first =
        chain.first.read.plan(context, chain.first.weights, in, chain.inner, firstSample);
    const MatrixView<float> nowhere = rowMajor<float>(nullptr, out.rows, out.cols);
    const AddedRead added{
        chain.second.read.plan(context, chain.second.weights, chain.inner, nowhere, firstSample),
        chain.factor};
    readWith(context, base.read.plan(context, base.weights, in, out, firstSample), first, added,
             base.read.marks());
    for (int i = 1; i < count; ++i) addChain(context, chains[i], in, out, firstSample, scratch);
    return;
  }
  // A read may change a running mean, so all reads must have their storage before the first one.
  base.read.reserve(context, base.weights, in.rows);
  for (int i = 0; i < count; ++i) reserveChain(context, chains[i], out, scratch);
  readByRows(context, in.rows, stepsOfRow(base, chains, count),
             rowsAreApart(context, base, chains, count),
             [&](const Context &of, int64_t begin, int64_t end) {
               const auto partOf = [&](auto matrix) {
                 return matrix.block(begin, 0, end - begin, matrix.cols);
               };
               const uint64_t sample = firstSample + static_cast<uint64_t>(begin);
               base.read.runRows(of, base.weights, partOf(in), partOf(out), sample, begin);
               for (int i = 0; i < count; ++i) {
                 ChainedRead chain = chains[i];
                 chain.inner = partOf(chain.inner);
                 if (chain.gate.data) chain.gate = partOf(chain.gate);
                 if (chain.ungated.data) chain.ungated = partOf(chain.ungated);
                 addRows(of, chain, partOf(in), partOf(out), sample,
                         scratch.data() + begin * out.cols, begin);
               }
             });
}

}  // namespace pulsora
