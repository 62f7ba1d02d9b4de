#include "transfer/pulse_transfer.h"

#include <algorithm>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {
namespace {

// Sample numbers of an array from which on its revisions draw.
constexpr uint64_t kRevisionSamples = kWritePulseSamples / 2;

}  // namespace

PulseTransfer::PulseTransfer(const Context &context, const TransferRule &rule, RandomKey key)
    : rule_(rule), updater_(rule.update, key), ledger_(context) {}

uint64_t PulseTransfer::firstSample(int sending) const {
  const uint64_t before = count() * static_cast<uint64_t>(rule_.sendings());
  return (before + static_cast<uint64_t>(sending)) * samplesPerSending();
}

uint64_t PulseTransfer::mostTransfers() const {
  if (rule_.mode == TransferMode::Exact) return kMostCounted;
  if (rule_.mode == TransferMode::WriteVerify)
    return kRevisionSamples / static_cast<uint64_t>(rule_.program.rounds);
  return kWritePulseSamples / (samplesPerSending() * static_cast<uint64_t>(rule_.sendings()));
}

void PulseTransfer::reserve(const Context &context, PulsedDevice &to) {
  const TransferPasses passes = reservePlan(context, rule_, to.cols() + to.rows(), plan_);
  ledger_.reserve(context, to);
  to.reserveCells(context);
  if (rule_.mode == TransferMode::Exact) {
    delta_.reserve(context, to.size());
    prepareProducts(context);
  } else if (rule_.mode == TransferMode::WriteVerify) {
    delta_.reserve(context, to.size());
    programmer_.reserve(context, to, rule_.program.rounds);
  } else if (!rule_.sendsPulses()) {
    updater_.reserve(context, to, rule_.components, rule_.lr);
  } else {
    const int64_t trains = std::min(passes.each, passes.most);
    xDrives_.reserve(context, trains * to.cols());
    dDrives_.reserve(context, trains * to.rows());
    updater_.reserve(context, to, trains, trainRule(rule_, to.granularity()).lr());
  }
}

void PulseTransfer::run(const Context &context, PulsedDevice &to, const TransferFactors &sent,
                        const TransferFactors &exact, CellVerifier *verifier,
                        MatrixView<const float> weights) {
  reserve(context, to);
  to.settle(context);
  ledger_.open(context, to, exact, rule_.lr);
  const ProgramCounts *program = verifier ? verifier->counts() : programmer_.counts();
  for (int sending = 0; sending < rule_.sendings(); ++sending) {
    const bool first = sending == 0;
    const TransferPlanner plan = planInto(
        context, rule_, to.granularity(), sent, exact, first ? to.pulseCounter() : nullptr,
        first ? ledger_.pulsesBefore() : nullptr, plan_, first ? nullptr : ledger_.missing());
    send(context, to, plan, sending, verifier, weights);
    ledger_.close(context, to, exact, rule_, plan.components, sending,
                  rule_.mode == TransferMode::WriteVerify ? program : nullptr);
  }
}

void PulseTransfer::send(const Context &context, PulsedDevice &to, const TransferPlanner &plan,
                         int sending, CellVerifier *verifier, MatrixView<const float> weights) {
  if (rule_.mode == TransferMode::Exact) {
    writeDigitally(context, to, plan.sent);
  } else if (rule_.mode == TransferMode::WriteVerify) {
    program(context, to, plan.sent, verifier, weights);
  } else if (!plan.rule.sends) {
    updater_.update(context, to, plan.sent.x.transposed(), plan.sent.d.transposed(), -rule_.lr,
                    firstSample(sending));
  } else {
    sendTrains(context, to, plan, sending);
  }
}

void PulseTransfer::writeDigitally(const Context &context, PulsedDevice &to,
                                   const TransferFactors &factors) {
  const auto target = rowMajor(delta_.data(), to.rows(), to.cols());
  gemm(context, rule_.lr, factors.d, factors.x.transposed(), 0.0f, target);
  to.addWeights(context, target, ownWrite(count()));
}

void PulseTransfer::program(const Context &context, PulsedDevice &to,
                            const TransferFactors &factors, CellVerifier *verifier,
                            MatrixView<const float> weights) {
  const uint64_t firstSample = count() * static_cast<uint64_t>(rule_.program.rounds);
  const auto before = verifier ? verifier->begin(context, to, count()) : to.weights();
  if (weights.data) {
    copy(context, weights, rowMajor(delta_.data(), to.rows(), to.cols()));
  } else {
    forEach(context, to.size(), TransferTargets{before, factors, rule_.lr, delta_.data()});
  }
  leadToTargets(context, to, firstSample, verifier, nullptr);
  if (!verifier) forEach(context, to.size(), MissingWeights{to.weights(), delta_.data()});
}

void PulseTransfer::revise(const Context &context, PulsedDevice &to, const HeldLines &held,
                           CellVerifier *verifier) {
  const uint64_t transfer = count() - 1;
  const auto before = verifier ? verifier->goOn(context, transfer) : to.weights();
  forEach(context, to.size(), RevisedTargets{before, held, delta_.data()});
  leadToTargets(context, to,
                kRevisionSamples + transfer * static_cast<uint64_t>(rule_.program.rounds), verifier,
                held.any);
  ledger_.revise(context, to, verifier ? verifier->counts() : programmer_.counts(),
                 rule_.program.tolerance, verifier == nullptr, held.any);
}

// Leads the cells to the targets in delta_, where a verifier leaves what is missing. Without one,
// nothing happens if *due is 0.
void PulseTransfer::leadToTargets(const Context &context, PulsedDevice &to, uint64_t firstSample,
                                  CellVerifier *verifier, const uint32_t *due) {
  if (verifier) {
    verifier->run(context, to, delta_.data(), firstSample);
    return;
  }
  programmer_.run(context, to, rowMajor<const float>(delta_.data(), to.rows(), to.cols()),
                  rule_.program, firstSample, due);
}

void PulseTransfer::sendTrains(const Context &context, PulsedDevice &to,
                               const TransferPlanner &plan, int sending) {
  const float lr = rule_.lr < 0.0f ? plan.rule.lr() : -plan.rule.lr();  // updates descend
  for (int64_t p = 0; p < plan.passes.count(); ++p) {
    const int64_t start = plan.passes.start(p);
    SampleRange samples{firstSample(sending) + static_cast<uint64_t>(start),
                        plan.passes.end(p) - start, nullptr};
    int64_t trains = samples.room;
    if (context.onCpu()) {
      trains = plan.present[p];
    } else {
      samples.present = plan.present + p;
    }
    // A pass without pulse trains is skipped, except the last one: it draws the final write noise.
    // (A GPU skips no pass, so that the last pass draws that noise there too.)
    if (trains == 0 && p + 1 < plan.passes.count()) continue;
    forEach(context, trains * (to.cols() + to.rows()),
            PulseTrainDrives{plan.sent, plan.components, plan.starts, start, xDrives_.data(),
                             dDrives_.data()});
    updater_.update(context, to, rowMajor<const float>(xDrives_.data(), trains, to.cols()),
                    rowMajor<const float>(dDrives_.data(), trains, to.rows()), lr, samples);
  }
}

}  // namespace pulsora
