#pragma once

#include <vector>

#include "core/buffer.h"
#include "util/matrix_test_util.h"

namespace pulsora::testing {

/// A copy of a LaidOut matrix in a context's memory, layout and gaps included.
template <class T>
class DeviceLaidOut {
 public:
  DeviceLaidOut(const Context &context, const LaidOut<T> &host)
      : memory_(context, static_cast<int64_t>(host.storage().size())) {
    detail::copyFromHost(context, memory_.data(), host.storage().data(), memory_.bytes());
    const MatrixView<const T> view = host.view();
    view_ = {memory_.data(), view.rows, view.cols, view.rowStride, view.colStride};
  }

  MatrixView<T> view() { return view_; }
  MatrixView<const T> view() const { return view_; }
  /// All of the memory, gaps included; waits for the GPU.
  std::vector<T> storage(const Context &context) const {
    std::vector<T> host(static_cast<size_t>(memory_.size()));
    detail::copyToHost(context, host.data(), memory_.data(), memory_.bytes());
    return host;
  }

 private:
  Buffer<T> memory_;
  MatrixView<T> view_;
};

}  // namespace pulsora::testing
