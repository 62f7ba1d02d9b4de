#pragma once

#include <vector>

#include "periphery/io_parameters.h"

namespace pulsora::testing {

/// Parameters of one-hot reads: the defaults, all effects, noise that grows with the weight, and
/// none.
inline std::vector<IOParameters> oneHotParameters() {
  IOParameters plain;
  IOParameters effects;
  effects.inp_noise = 0.01f;
  effects.out_noise_std = 0.3f;
  effects.w_noise = 0.02f;
  effects.w_noise_type = WeightNoiseType::AdditiveConstant;
  effects.ir_drop = 1.0f;
  effects.out_nonlinearity = 0.1f;
  IOParameters pcm = effects;
  pcm.w_noise_type = WeightNoiseType::PcmRead;
  pcm.out_sto_round = true;
  pcm.inp_sto_round = true;
  IOParameters quiet;
  quiet.out_noise = 0.0f;
  quiet.r_series = 0.01f;
  return {plain, effects, pcm, quiet};
}

}  // namespace pulsora::testing
