#include "lowrank_binding.h"

#include <array>
#include <pybind11/stl.h>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/context.h"
#include "core/cuda_api.h"
#include "lowrank/adapter_gradients.h"
#include "lowrank/gated_low_rank.h"
#include "torch_tensor.h"

namespace pulsora::bindings {
namespace {

namespace py = pybind11;

// The dtype objects of torch; there is one object per type.
struct TorchTypes {
  py::object float32, float16, bfloat16, uint8;

  static const TorchTypes &get() {
    static const TorchTypes &types = *[] {
      const py::module_ torch = py::module_::import("torch");
      return new TorchTypes{torch.attr("float32"), torch.attr("float16"), torch.attr("bfloat16"),
                            torch.attr("uint8")};
    }();
    return types;
  }
};

ElementType typeOf(py::handle tensor, const char *name) {
  static PyObject *const kDtype = PyUnicode_InternFromString("dtype");
  const py::object dtype = tensor.attr(kDtype);
  const TorchTypes &types = TorchTypes::get();
  if (dtype.is(types.float32)) return ElementType::Float32;
  if (dtype.is(types.float16)) return ElementType::Float16;
  if (dtype.is(types.bfloat16)) return ElementType::BFloat16;
  throw py::type_error(message(name, " has dtype ", py::str(dtype).cast<std::string>(),
                               "; convert it to float32, float16 or bfloat16"));
}

// The two sizes or strides of a tensor, from torch's tuple of integers.
std::array<int64_t, 2> twoOf(const py::object &tuple, const char *name) {
  PULSORA_CHECK(InputError, PyTuple_Check(tuple.ptr()) && PyTuple_GET_SIZE(tuple.ptr()) == 2, name,
                " must have two dimensions");
  std::array<int64_t, 2> two{};
  for (size_t i = 0; i < 2; ++i) {
    two[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i)));
    if (two[i] == -1 && PyErr_Occurred()) throw py::error_already_set();
  }
  return two;
}

// A tensor of two dimensions as a matrix; a matrix without data for None.
AnyMatrix matrixOf(py::handle tensor, const char *name) {
  if (tensor.is_none()) return {};
  static PyObject *const kShape = PyUnicode_InternFromString("shape");
  static PyObject *const kStride = PyUnicode_InternFromString("stride");
  const auto shape = twoOf(tensor.attr(kShape), name);
  const auto strides = twoOf(ask(tensor, kStride), name);
  return {typeOf(tensor, name), addressOf(tensor), shape[0], shape[1], strides[0], strides[1]};
}

MatrixView<float> floatMatrixOf(py::handle tensor, const char *name) {
  const AnyMatrix matrix = matrixOf(tensor, name);
  requireType("pulsora", name, matrix, ElementType::Float32);
  return matrix.as<float>();
}

// Layout of codes that rows of a batch share: (rows, columns, inner, strides of outer, inner and
// column).
using CodeLayout = std::array<int64_t, 6>;

Codes codesOf(py::handle tensor, py::handle layoutOf) {
  if (tensor.is_none()) return Codes::ones();
  const auto layout = layoutOf.cast<CodeLayout>();
  return {typeOf(tensor, "codes"),
          addressOf(tensor),
          layout[1],
          layout[0],
          layout[2],
          layout[3],
          layout[4],
          layout[5]};
}

/// Allocates from torch while a stream is being captured: torch keeps the memory of a graph for as
/// long as the graph lives.
class GraphMemory : public ScratchAllocator {
 public:
  /// Sets the context's allocator if its stream is being captured. `tensor` is on the same device.
  GraphMemory(Context &context, py::handle tensor) : tensor_(tensor) {
    if (!context.onCpu() && isCaptured(context.stream)) context.allocator = this;
  }
  void *allocate(size_t bytes) override {
    const py::gil_scoped_acquire held;
    lent_.push_back(tensor_.attr("new_empty")(bytes, py::arg("dtype") = TorchTypes::get().uint8));
    return addressOf(lent_.back());
  }

 private:
  py::handle tensor_;
  std::vector<py::object> lent_;
};

void forward(py::handle x, py::handle v, py::handle codes, py::handle layout, py::handle u,
             py::handle scale, py::handle base, py::handle y, int device, intptr_t stream,
             int threads) {
  const GatedLowRank update{matrixOf(x, "x"), matrixOf(v, "v"), codesOf(codes, layout),
                            matrixOf(u, "u"), scale.cast<float>()};
  const AnyMatrix added = matrixOf(base, "base");
  const AnyMatrix result = matrixOf(y, "y");
  Context context = contextOf(device, stream, threads);
  const GraphMemory memory(context, x);
  const py::gil_scoped_release release;
  gatedLowRank(context, update, added, result);
}

// Returns false, having done nothing, if torch's product as the base is faster. With `always`, runs
// wherever a kernel can, and on the CPU.
bool linear(py::handle x, py::handle weight, py::handle bias, py::handle v, py::handle codes,
            py::handle layout, py::handle u, py::handle scale, py::handle y, bool always,
            int device, intptr_t stream, int threads) {
  const GatedLowRank update{matrixOf(x, "x"), matrixOf(v, "v"), codesOf(codes, layout),
                            matrixOf(u, "u"), scale.cast<float>()};
  const AnyMatrix of = matrixOf(weight, "weight");
  const AnyMatrix added = matrixOf(bias, "bias");
  const AnyMatrix result = matrixOf(y, "y");
  Context context = contextOf(device, stream, threads);
  if (!always && !gatedLowRankLinearPays(context, update, of, added, result)) return false;
  const GraphMemory memory(context, x);
  const py::gil_scoped_release release;
  gatedLowRankLinear(context, update, of, added, result);
  return true;
}

void backward(py::handle dy, py::handle x, py::handle v, py::handle codes, py::handle layout,
              py::handle u, py::handle scale, py::handle dx, py::handle dv, py::handle dcodes,
              py::handle du, int device, intptr_t stream, int threads) {
  const GatedLowRank update{matrixOf(x, "x"), matrixOf(v, "v"), codesOf(codes, layout),
                            matrixOf(u, "u"), scale.cast<float>()};
  const AnyMatrix given = matrixOf(dy, "dy");
  GatedGradients gradients{matrixOf(dx, "dx"),
                           matrixOf(dv, "dv"),
                           floatMatrixOf(dcodes, "dcodes"),
                           matrixOf(du, "du"),
                           {}};
  Context context = contextOf(device, stream, threads);
  const GraphMemory memory(context, x);
  // Scratch is torch's memory, too.
  py::object scratch;
  if (const int64_t size = gatedLowRankScratch(context, update, given, gradients); size > 0) {
    scratch = x.attr("new_empty")(size, py::arg("dtype") = TorchTypes::get().float32);
    gradients.scratch = vectorView(reinterpret_cast<float *>(addressOf(scratch)), size);
  }
  const py::gil_scoped_release release;
  gatedLowRankBackward(context, update, given, gradients);
}

void adapter(py::handle dc, py::handle a, py::handle b, py::handle da, py::handle db,
             std::array<bool, 2> accumulate, int device, intptr_t stream, int threads) {
  const AnyMatrix gradient = matrixOf(dc, "dc");
  const AnyMatrix left = matrixOf(a, "a");
  const AnyMatrix right = matrixOf(b, "b");
  const AdapterGradient leftGradient{floatMatrixOf(da, "da"), accumulate[0]};
  const AdapterGradient rightGradient{floatMatrixOf(db, "db"), accumulate[1]};
  Context context = contextOf(device, stream, threads);
  const GraphMemory memory(context, dc);
  const py::gil_scoped_release release;
  adapterGradients(context, gradient, left, right, leftGradient, rightGradient);
}

}  // namespace

void bindLowRank(py::module_ &module) {
  using py::arg;
  module.def("gated_low_rank", &forward, arg("x"), arg("v"), arg("codes"), arg("layout"), arg("u"),
             arg("scale"), arg("base"), arg("y"), arg("device"), arg("stream"), arg("threads"));
  module.def("gated_low_rank_linear", &linear, arg("x"), arg("weight"), arg("bias"), arg("v"),
             arg("codes"), arg("layout"), arg("u"), arg("scale"), arg("y"), arg("always"),
             arg("device"), arg("stream"), arg("threads"));
  module.def("gated_low_rank_backward", &backward, arg("dy"), arg("x"), arg("v"), arg("codes"),
             arg("layout"), arg("u"), arg("scale"), arg("dx"), arg("dv"), arg("dcodes"), arg("du"),
             arg("device"), arg("stream"), arg("threads"));
  module.def("adapter_gradients", &adapter, arg("dc"), arg("a"), arg("b"), arg("da"), arg("db"),
             arg("accumulate"), arg("device"), arg("stream"), arg("threads"));
}

}  // namespace pulsora::bindings
