#pragma once

#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/view.h"

namespace pulsora {

/// A gapless row-major matrix in a container with data() and size(), such as a std::vector.
/// InputError unless the container has rows * cols elements.
template <class Container, class = decltype(std::declval<Container &>().size())>
auto rowMajor(Container &elements, int64_t rows, int64_t cols)
    -> MatrixView<std::remove_pointer_t<decltype(elements.data())>> {
  const auto size = static_cast<int64_t>(elements.size());
  PULSORA_CHECK(InputError, rows >= 0 && cols >= 0 && size == rows * cols, "a container of ", size,
                " elements cannot be a matrix [", rows, ", ", cols, "]");
  return rowMajor(elements.data(), rows, cols);
}

}  // namespace pulsora
