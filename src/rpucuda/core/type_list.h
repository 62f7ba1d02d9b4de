#pragma once

namespace pulsora {

/// A list of types, to be taken apart by a template that lists them as `Types...`.
template <class... Types>
struct TypeList {};

/// A type as a value, for generic lambdas.
template <class T>
struct OneType {
  using Type = T;
};

}  // namespace pulsora
