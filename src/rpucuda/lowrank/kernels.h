#pragma once

#include "lowrank/adapter_gradients.h"
#include "lowrank/gated_low_rank.h"

// The fused kernels of a GPU (cuda/lowrank/). A function that returns true has enqueued the whole
// operation; other cases are left to the products of linalg/.

namespace pulsora {

bool cudaGatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                      AnyMatrix y);
bool cudaGatedLowRankLinear(const Context &context, const GatedLowRank &update,
                            ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y);
/// Whether cudaGatedLowRankLinear() takes the case and is expected to be fastest.
bool cudaGatedLowRankLinearPays(const Context &context, const GatedLowRank &update,
                                ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y);
bool cudaGatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                              const GatedGradients &gradients);
/// The gradients of an adapter in one pass over dc (see adapterGradients()).
bool cudaAdapterGradients(const Context &context, MatrixView<const float> dc,
                          MatrixView<const float> a, MatrixView<const float> b,
                          const AdapterGradient &da, const AdapterGradient &db);
/// Floats of scratch that the fused kernel needs; 0 if no fused kernel takes the case.
int64_t cudaGatedLowRankScratch(const Context &context, const GatedLowRank &update,
                                ConstAnyMatrix dy, const GatedGradients &gradients);

}  // namespace pulsora
