#include "core/isa.h"

#include "core/isa_dispatch.h"

namespace pulsora {
namespace {

#ifdef __x86_64__
// __builtin_cpu_supports also tests whether the operating system saves the wide registers.
bool canExecute(Isa isa) {
  switch (isa) {
    case Isa::V2:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    case Isa::V3:
      return canExecute(Isa::V2) && __builtin_cpu_supports("avx2") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2");
    case Isa::V4:
      return canExecute(Isa::V3) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::V4Popcnt:
      return canExecute(Isa::V4) && __builtin_cpu_supports("avx512vpopcntdq") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
}
#else
bool canExecute(Isa isa) { return isa == Isa::V2; }
#endif

}  // namespace

const char *isaName(Isa isa) {
  switch (isa) {
    case Isa::V2:
      return "V2";
    case Isa::V3:
      return "V3";
    case Isa::V4:
      return "V4";
    case Isa::V4Popcnt:
      return "V4Popcnt";
  }
  return "unknown";
}

bool isaSupported(Isa isa) { return isa <= kLastIsa && canExecute(isa); }

std::vector<Isa> supportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::V2, Isa::V3, Isa::V4, Isa::V4Popcnt}) {
    if (isaSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa bestIsa() {
  int best = static_cast<int>(kLastIsa);
  while (best > 0 && !isaSupported(static_cast<Isa>(best))) --best;
  return static_cast<Isa>(best);
}

}  // namespace pulsora
