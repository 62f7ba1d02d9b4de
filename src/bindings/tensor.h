#pragma once

#include <optional>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/context.h"
#include "core/view.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A float32 matrix passed by a caller: a NumPy array, or anything with __dlpack__ (a torch
/// tensor). Memory is borrowed if it is float32 with gapless rows on the context's backend. float16
/// and float64 are rounded to float32; host memory is copied to a tile on a GPU. Integers, booleans
/// and complex numbers are a TypeError; memory of another device is a DeviceError. A vector counts
/// as a batch of one.
class InputMatrix {
 public:
  /// `ofTorch`: the object is a tensor of torch, and the context's stream is torch's current one,
  /// so that no synchronisation is needed.
  InputMatrix(py::handle object, const char *name, const Context &context, bool ofTorch = false);

  MatrixView<const float> view() const { return view_; }
  bool isVector() const { return isVector_; }
  bool onHost() const { return onHost_; }
  bool ofTorch() const { return ofTorch_; }

 private:
  py::object owner_;
  Buffer<float> staged_;
  MatrixView<const float> view_;
  bool isVector_ = false;
  bool onHost_ = true;
  bool ofTorch_ = false;
};

/// Whether an object is a tensor of torch.
bool isOfTorch(py::handle object);

/// Destination of a result [rows, cols]: the caller's `out`, or a new array of the kind of `like`;
/// squeezed if `like` was a vector. Fill view(), then take result().
class OutputMatrix {
 public:
  OutputMatrix(py::handle out, int64_t rows, int64_t cols, const InputMatrix &like,
               const Context &context);
  /// Not squeezed: the caller's `out`, or a new array in host memory.
  OutputMatrix(int64_t rows, int64_t cols, const Context &context, py::handle out = py::none());

  MatrixView<float> view() const { return view_; }
  /// The finished array; for a tile on a GPU, host memory is filled here.
  py::object result(const Context &context);

 private:
  void allocate(int64_t rows, int64_t cols, bool squeezed, bool onHost, const Context &context);
  void useGiven(py::handle out, const std::vector<int64_t> &shape, bool ofTorch,
                const Context &context);

  py::object result_;
  Buffer<float> staged_;  // on a GPU, for a result in host memory
  MatrixView<float> view_;
  MatrixView<float> host_;  // destination of staged_
};

/// "[2, 3]", for messages.
std::string describeShape(const std::vector<int64_t> &shape);

}  // namespace pulsora::bindings
