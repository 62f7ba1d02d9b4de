#pragma once

// <cmath> for NVRTC, which has no standard library: functions of double precision that noise models
// use on the host. The same text compiles for a GPU, where nothing calls them.

#include "runtime/device_std/cstdint.cuh"

namespace std {
using ::cbrt;
using ::ceil;
using ::cos;
using ::erf;
using ::exp;
using ::expm1;
using ::fabs;
using ::floor;
using ::fmax;
using ::fmin;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::pow;
using ::sin;
using ::sqrt;
using ::tanh;
}  // namespace std
