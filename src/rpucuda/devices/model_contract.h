#pragma once

#include <type_traits>

#include "devices/pulsed_model.h"

// Messages of the compiler about what a struct lacks to be a device model: without them, the first
// thing that its author reads about a missing member is an error within kernels.

namespace pulsora {
namespace detail {

#define PULSORA_DETECT(Has, ...)        \
  template <class Device, class = void> \
  struct Has : std::false_type {};      \
  template <class Device>               \
  struct Has<Device, std::void_t<decltype(__VA_ARGS__)>> : std::true_type {}

// Only declared: the checks below need types alone.
CellDraws &someDraws();
template <class Device>
const typename Device::Params &someParams();
template <class Device>
const typename Device::Cell &someCell();
template <class Device>
const typename Device::Response &someResponse();

PULSORA_DETECT(HasName, Device::kName);
PULSORA_DETECT(HasDoc, Device::kDoc);
PULSORA_DETECT(HasParams, static_cast<const PulsedParams &>(someParams<Device>()));
PULSORA_DETECT(HasCell, static_cast<const PulsedCell &>(someCell<Device>()));
PULSORA_DETECT(HasResponse, static_cast<const PulsedResponse &>(someResponse<Device>()));
PULSORA_DETECT(Constructs,
               typename Device::Cell(Device::construct(someParams<Device>(), someDraws(), true)));
PULSORA_DETECT(Responds, typename Device::Response(Device::response(someCell<Device>(),
                                                                    someParams<Device>())));
PULSORA_DETECT(Pulses, float(Device::pulse(0.0f, true, someResponse<Device>(), someParams<Device>(),
                                           0.0f)));
PULSORA_DETECT(HasGranularity, float(Device::granularity(someParams<Device>())));

#undef PULSORA_DETECT

}  // namespace detail

/// Returns true; for a struct that is no device model, fails to compile and says what is missing.
template <class Device>
constexpr bool isDeviceModel() {
  static_assert(detail::HasName<Device>::value,
                "a device model needs: static constexpr const char *kName = \"its name\";");
  static_assert(detail::HasDoc<Device>::value,
                "a device model needs: static constexpr const char *kDoc = \"what it is.\";");
  static_assert(detail::HasParams<Device>::value,
                "a device model needs: struct Params : PulsedParams, with kName and fields()");
  static_assert(detail::HasCell<Device>::value,
                "a device model needs: using Cell = PulsedCell, or a struct Cell : PulsedCell with "
                "members()");
  static_assert(detail::HasResponse<Device>::value,
                "a device model needs: a struct Response : PulsedResponse with members()");
  static_assert(
      detail::Constructs<Device>::value,
      "a device model needs: PULSORA_HD static Cell construct(const Params &, CellDraws &, "
      "bool bias), which samples a cell");
  static_assert(
      detail::Responds<Device>::value,
      "a device model needs: PULSORA_HD static Response response(const Cell &, const Params "
      "&), what a pulse needs of a cell");
  static_assert(
      detail::Pulses<Device>::value,
      "a device model needs: PULSORA_HD static float pulse(float w, bool up, const Response "
      "&, const Params &, float xi), the weight after one pulse");
  static_assert(detail::HasGranularity<Device>::value,
                "a device model needs: static float granularity(const Params &), the weight change "
                "of one pulse at weight 0: return stepAtZero<the model>(p)");
  return true;
}

}  // namespace pulsora
