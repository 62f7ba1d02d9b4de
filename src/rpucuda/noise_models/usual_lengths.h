#pragma once

#include <type_traits>

#include "core/platform.h"

// The lengths of loops that a noise model names as usual, by Params::usual() (noise_model.h).

namespace pulsora {
namespace detail {

struct IsUsual {
  bool *all;
  PULSORA_HD void operator()(int number, int usual) const { *all = *all && number == usual; }
};
struct SetUsual {
  PULSORA_HD void operator()(int &number, int usual) const { number = usual; }
};

// Only declared, for its type.
template <class Params>
Params &anyParams();
template <class Params, class = void>
struct HasUsual : std::false_type {};
template <class Params>
struct HasUsual<Params, std::void_t<decltype(anyParams<Params>().usual(SetUsual{}))>>
    : std::true_type {};

}  // namespace detail

/// Whether a model names usual lengths, and these parameters have them all.
template <class Params>
PULSORA_HD bool lengthsAreUsual(const Params &p) {
  bool usual = detail::HasUsual<Params>::value;
  if constexpr (detail::HasUsual<Params>::value)
    const_cast<Params &>(p).usual(detail::IsUsual{&usual});  // which reads them
  return usual;
}

/// Parameters for a loop over devices: a copy whose lengths the compiler knows, if they are usual.
template <class Params, bool kUsual>
struct LoopParams {
  const Params &p;
};
template <class Params>
struct LoopParams<Params, true> {
  Params p;

  explicit PULSORA_HD LoopParams(const Params &given) : p(given) {
    if constexpr (detail::HasUsual<Params>::value) p.usual(detail::SetUsual{});
  }
};

}  // namespace pulsora
