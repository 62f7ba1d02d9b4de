#include <algorithm>
#include <cmath>

#include "core/backend.h"
#include "core/reduce.h"
#include "lrtt_elements.h"
#include "lrtt_transfer.h"

namespace RPU {
namespace {

std::vector<double> limitedSums(const Context &context, MatrixView<const float> factor,
                                const std::vector<float> &limits) {
  const int64_t k = factor.cols;
  Buffer<float> device(context, k);
  Buffer<double> sums(context, k);
  detail::copyFromHost(context, device.data(), limits.data(), device.bytes());
  sumRows(context, k, factor.rows, LimitedTerm{factor.transposed(), device.data()}, sums.data());
  std::vector<double> host(limits.size());
  detail::copyToHost(context, host.data(), sums.data(), sums.bytes());
  return host;
}

// Lossless: the drives are the probabilities themselves. Both sides peak at p with p^2 * desired_bl
// * trains pulses for the largest element, so that neither clips and every element has the mean
// transfer_lr a_i b_j, whatever the scales of a and b. With lr = granularity * desired_bl the rule
// of trainScale() takes drives for probabilities.
void chooseTrains(const LRTTSettings &settings, float dMax, float xMax, ComponentPlan &component) {
  const double needed = static_cast<double>(component.strength);
  const double length = static_cast<double>(settings.transferUpdate.desired_bl);
  const double trains = std::min(std::ceil(needed / length),
                                 static_cast<double>(settings.params.transfer_max_trains));
  const double p = std::sqrt(needed / (length * trains));
  component.trains = static_cast<int>(trains);
  component.xScale = static_cast<float>(p / static_cast<double>(xMax));
  component.dScale = static_cast<float>(p / static_cast<double>(dMax));
}

}  // namespace

int64_t TransferPlan::trains() const {
  int64_t total = 0;
  for (const ComponentPlan &component : components) total += component.trains;
  return total;
}

ComponentMaxima componentMaxima(const Context &context, MatrixView<const float> dFactor,
                                MatrixView<const float> xFactor) {
  const int64_t k = dFactor.cols;
  Buffer<float> maxima(context, 2 * k);
  rowAbsMax(context, dFactor.transposed(), maxima.data());
  rowAbsMax(context, xFactor.transposed(), maxima.data() + k);
  ComponentMaxima host{std::vector<float>(static_cast<size_t>(k)),
                       std::vector<float>(static_cast<size_t>(k))};
  detail::copyToHost(context, host.d.data(), maxima.data(), host.d.size() * sizeof(float));
  detail::copyToHost(context, host.x.data(), maxima.data() + k, host.x.size() * sizeof(float));
  return host;
}

TransferPlan planTransfer(const Context &context, const LRTTSettings &settings, float granularity,
                          MatrixView<const float> dFactor, MatrixView<const float> xFactor) {
  const UpdateParameters &update = settings.transferUpdate;
  const bool lossless = settings.params.transfer_mode == TransferMode::Lossless;
  const double size = std::abs(static_cast<double>(settings.transferLr));
  const ComponentMaxima maxima = componentMaxima(context, dFactor, xFactor);
  const size_t rank = maxima.d.size();
  TransferPlan plan;
  plan.components.resize(rank);
  plan.lr =
      lossless ? granularity * static_cast<float>(update.desired_bl) : static_cast<float>(size);

  std::vector<float> dLimits(rank), xLimits(rank);
  std::vector<double> perElement(rank);  // mean change of a cell that no line clips, per |a_i b_j|
  for (size_t k = 0; k < rank; ++k) {
    ComponentPlan &component = plan.components[k];
    component.strength =
        static_cast<float>(size * static_cast<double>(maxima.d[k]) *
                           static_cast<double>(maxima.x[k]) / static_cast<double>(granularity));
    if (!(component.strength > 0.0f)) continue;
    component.trains = 1;
    if (lossless) chooseTrains(settings, maxima.d[k], maxima.x[k], component);
    const float dDrive = component.dScale * maxima.d[k];
    const float xDrive = component.xScale * maxima.x[k];
    const TrainScale t = trainScale(update, plan.lr, granularity, xDrive, dDrive);
    if (t.length == 0) {
      component.trains = 0;
      continue;
    }
    component.clipped = t.dScale * dDrive > 1.00001f || t.xScale * xDrive > 1.00001f;
    dLimits[k] = 1.0f / (t.dScale * component.dScale);
    xLimits[k] = 1.0f / (t.xScale * component.xScale);
    perElement[k] = static_cast<double>(component.trains) * t.length *
                    static_cast<double>(granularity) *
                    (static_cast<double>(t.dScale) * static_cast<double>(component.dScale)) *
                    (static_cast<double>(t.xScale) * static_cast<double>(component.xScale));
  }
  const std::vector<float> unlimited(rank, kInfinity);
  const std::vector<double> dSums = limitedSums(context, dFactor, unlimited);
  const std::vector<double> xSums = limitedSums(context, xFactor, unlimited);
  const std::vector<double> dDriven = limitedSums(context, dFactor, dLimits);
  const std::vector<double> xDriven = limitedSums(context, xFactor, xLimits);
  for (size_t k = 0; k < rank; ++k) {
    ComponentPlan &component = plan.components[k];
    component.wanted = size * dSums[k] * xSums[k];
    component.driven = component.trains > 0 && !component.clipped
                           ? component.wanted
                           : perElement[k] * dDriven[k] * xDriven[k];
  }
  return plan;
}

}  // namespace RPU
