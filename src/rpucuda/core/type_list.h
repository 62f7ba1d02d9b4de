#pragma once

namespace pulsora {

/// A list of types, to be taken apart by a template that lists them as `Types...`.
template <class... Types>
struct TypeList {};

}  // namespace pulsora
