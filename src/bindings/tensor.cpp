#include "tensor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <pybind11/stl.h>

#include "core/check.h"
#include "core/cuda_api.h"
#include "device_array.h"
#include "dlpack.h"

namespace pulsora::bindings {
namespace {

// An array of NumPy or DLPack. Strides count elements, for arrays with elements aligned like
// floats.
struct RawArray {
  py::object owner;
  py::array array;  // NumPy's view of the same elements, in host memory
  void *data = nullptr;
  std::vector<int64_t> shape, strides;
  Backend backend = Backend::Cpu;
  int device = 0;
  bool isFloat32 = false;  // and aligned, so that it can be read in place
  bool isWritable = true;

  int64_t rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t cols() const { return shape.back(); }
  bool hasGaplessRows() const {
    if (rows() == 0) return true;  // torch gives NumPy strides of 0 for these
    const size_t last = shape.size() - 1;
    return (cols() <= 1 || strides[last] == 1) && (rows() <= 1 || strides[0] >= cols());
  }
  template <class T>
  MatrixView<T> view() const {
    return rowMajor(static_cast<T *>(data), rows(), cols(), rows() > 1 ? strides[0] : cols());
  }
};

bool isFloatAddress(const void *data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(float) == 0;
}

[[noreturn]] void refuseType(const char *name, const std::string &dtype) {
  throw py::type_error(message(name, " has dtype ", dtype,
                               "; convert it to float32, for example with ", name,
                               ".astype(numpy.float32) or ", name, ".float()"));
}

RawArray fromNumpy(const py::array &array) {
  RawArray raw;
  raw.owner = array;
  raw.array = array;
  const py::dtype type = array.dtype();
  const bool isNative = type.byteorder() == '=' || type.byteorder() == '|';
  raw.isFloat32 = type.kind() == 'f' && type.itemsize() == sizeof(float) && isNative;
  raw.data = const_cast<void *>(array.data());
  raw.isWritable = array.writeable();
  bool isAligned = isFloatAddress(raw.data);
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    raw.shape.push_back(array.shape(axis));
    raw.strides.push_back(array.strides(axis) / static_cast<py::ssize_t>(sizeof(float)));
    isAligned = isAligned && array.strides(axis) % static_cast<py::ssize_t>(sizeof(float)) == 0;
  }
  raw.isFloat32 = raw.isFloat32 && isAligned;  // other data must be copied, like another type
  return raw;
}

std::string describeCapsule(const py::object &object) {
  if (!PyCapsule_CheckExact(object.ptr()))
    return message("an object of type ", Py_TYPE(object.ptr())->tp_name);
  const char *name = PyCapsule_GetName(object.ptr());
  return message("a capsule '", name ? name : "", "'");
}

// Adopts the capsule of a DLPack producer; the tensor lives as long as the returned owner. The
// capsule's name gives its content, and whether another consumer has taken it.
py::object adopt(const py::object &capsule, const char *name, dlpack::ManagedTensor *&managed) {
  PULSORA_CHECK(InputError, PyCapsule_IsValid(capsule.ptr(), dlpack::kCapsuleName), name,
                " gives as __dlpack__() ", describeCapsule(capsule),
                " instead of a fresh capsule '", dlpack::kCapsuleName,
                "'; pass a copy of it as a NumPy array or a torch tensor");
  managed = static_cast<dlpack::ManagedTensor *>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::kCapsuleName));
  py::capsule owner(managed, [](void *pointer) {
    auto *owned = static_cast<dlpack::ManagedTensor *>(pointer);
    if (owned->deleter) owned->deleter(owned);
  });
  PyCapsule_SetName(capsule.ptr(), dlpack::kUsedCapsuleName);
  return owner;
}

py::object exportCapsule(py::handle object, const char *name, bool isCuda, const Context &context) {
  try {
    if (!isCuda) return object.attr("__dlpack__")();
    // DLPack's number of the legacy default stream is 1.
    const auto stream = context.stream ? reinterpret_cast<intptr_t>(context.stream) : 1;
    return object.attr("__dlpack__")(py::arg("stream") = stream);
  } catch (py::error_already_set &error) {
    if (!error.matches(PyExc_BufferError)) throw;
    throw InputError(
        message(name, " cannot be shared: ", py::str(error.value()).cast<std::string>()));
  }
}

// The producer's device type, in DLPack's numbers.
int64_t deviceTypeOf(py::handle object, const char *name) {
  const py::object device = object.attr("__dlpack_device__")();
  if (!PyTuple_Check(device.ptr()) || PyTuple_GET_SIZE(device.ptr()) != 2 ||
      !PyIndex_Check(PyTuple_GET_ITEM(device.ptr(), 0))) {
    throw py::type_error(message(name, " gives as __dlpack_device__() an object of type ",
                                 Py_TYPE(device.ptr())->tp_name,
                                 "; it must be a tuple of two integers, type and number"));
  }
  int overflow = 0;
  const int64_t type = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(device.ptr(), 0), &overflow);
  if (PyErr_Occurred()) throw py::error_already_set();
  return type;
}

std::string describeType(const dlpack::DataType &type) {
  constexpr std::array<const char *, 7> kCodes = {
      "int", "uint", "float", "an opaque type of ", "bfloat", "complex", "bool"};
  const char *code = type.code < kCodes.size() ? kCodes[type.code] : "an unknown type of ";
  return message(code, static_cast<int>(type.bits), type.lanes == 1 ? "" : " in lanes");
}

void requireBatchShape(const std::vector<int64_t> &shape, const char *name) {
  PULSORA_CHECK(InputError, shape.size() == 1 || shape.size() == 2, name, " has shape ",
                describeShape(shape), "; pass a batch [samples, lines] or one sample [lines]");
}

// InputError if a capsule contradicts itself or its producer.
void requireSound(const dlpack::Tensor &tensor, int64_t type, const std::vector<int64_t> &shape,
                  const char *name) {
  PULSORA_CHECK(InputError, tensor.device.type == type, name, " lies on a device of DLPack type ",
                type, " by its __dlpack_device__(), but of type ", tensor.device.type,
                " by its capsule");
  int64_t size = 1;
  bool isShape = true;
  for (const int64_t extent : shape)
    isShape = isShape && extent >= 0 && !__builtin_mul_overflow(size, extent, &size);
  PULSORA_CHECK(InputError, isShape, name, " has shape ", describeShape(shape),
                " by its capsule, which no array has");
  PULSORA_CHECK(InputError, tensor.data || size == 0, name, " has no data behind its capsule");
}

// A NumPy array of the elements of a tensor in host memory.
py::array numpyView(const dlpack::Tensor &tensor, const RawArray &raw, const char *name) {
  const dlpack::DataType &type = tensor.dtype;
  const bool isKnown = type.code == dlpack::kFloat && type.lanes == 1 &&
                       (type.bits == 16 || type.bits == 32 || type.bits == 64);
  if (!isKnown) refuseType(name, describeType(type));
  std::vector<py::ssize_t> strides;
  strides.reserve(raw.strides.size());
  for (const int64_t stride : raw.strides) {
    int64_t bytes = 0;
    PULSORA_CHECK(InputError, !__builtin_mul_overflow(stride, type.bits / 8, &bytes), name,
                  " has a stride of ", stride, " elements by its capsule, which no memory holds");
    strides.push_back(bytes);
  }
  return {py::dtype(describeType(type)), raw.shape, strides, raw.data, raw.owner};
}

RawArray fromDlpack(py::handle object, const char *name, const Context &context) {
  const int64_t type = deviceTypeOf(object, name);
  const bool isCuda = type == dlpack::kCuda || type == dlpack::kCudaManaged;
  PULSORA_CHECK(DeviceError, isCuda || type == dlpack::kCpu || type == dlpack::kCudaHost, name,
                " lies on a device of DLPack type ", type, "; copy it to the CPU or a CUDA device");
  dlpack::ManagedTensor *managed = nullptr;
  RawArray raw;
  raw.owner = adopt(exportCapsule(object, name, isCuda, context), name, managed);
  const dlpack::Tensor &tensor = managed->tensor;
  if (tensor.ndim > 0) raw.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  requireBatchShape(raw.shape, name);
  requireSound(tensor, type, raw.shape, name);
  raw.data = static_cast<char *>(tensor.data) + tensor.byteOffset;
  raw.backend = isCuda ? Backend::Cuda : Backend::Cpu;
  raw.device = tensor.device.id;
  raw.isFloat32 = tensor.dtype.code == dlpack::kFloat && tensor.dtype.bits == 32 &&
                  tensor.dtype.lanes == 1 && isFloatAddress(raw.data);
  if (tensor.strides) {
    raw.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  } else {
    raw.strides.assign(raw.shape.size(), 1);
    for (size_t i = raw.shape.size(); i-- > 1;) raw.strides[i - 1] = raw.strides[i] * raw.shape[i];
  }
  if (!isCuda) raw.array = numpyView(tensor, raw, name);
  return raw;
}

// A plain float32 torch tensor in GPU memory, by its address. DLPack would take the host as long as
// a small read. Unusual tensors are left to DLPack and its messages.
std::optional<RawArray> fromTorch(py::handle tensor) {
  if (std::strcmp(Py_TYPE(tensor.ptr())->tp_name, "Tensor") != 0) return {};  // a subclass
  const auto is = [&](const char *what) { return tensor.attr(what).cast<bool>(); };
  const auto ask = [&](const char *what) { return tensor.attr(what)(); };
  if (!is("is_cuda") || is("requires_grad") || ask("is_neg").cast<bool>() ||
      !ask("is_floating_point").cast<bool>() || ask("element_size").cast<size_t>() != 4) {
    return {};
  }
  RawArray raw;
  raw.owner = py::reinterpret_borrow<py::object>(tensor);
  try {
    raw.data = reinterpret_cast<void *>(ask("data_ptr").cast<uintptr_t>());
  } catch (py::error_already_set &) {  // a sparse tensor, for example
    return {};
  }
  raw.shape = tensor.attr("shape").cast<std::vector<int64_t>>();
  raw.strides = ask("stride").cast<std::vector<int64_t>>();
  raw.backend = Backend::Cuda;
  raw.device = ask("get_device").cast<int>();
  raw.isFloat32 = isFloatAddress(raw.data);
  return raw;
}

bool isMasked(py::handle array) {
  return py::isinstance(array, py::module_::import("numpy").attr("ma").attr("MaskedArray"));
}

RawArray readArray(py::handle object, const char *name, const Context &context, bool ofTorch) {
  RawArray raw;
  std::optional<RawArray> tensor = ofTorch ? fromTorch(object) : std::nullopt;
  if (tensor) {
    raw = std::move(*tensor);
  } else if (py::isinstance<py::array>(object)) {
    PULSORA_CHECK(InputError, !isMasked(object), name,
                  " is a masked array, whose masked elements a tile cannot leave out; pass ", name,
                  ".filled(0) to make them 0");
    raw = fromNumpy(py::reinterpret_borrow<py::array>(object));
  } else if (py::hasattr(object, "__dlpack__") && py::hasattr(object, "__dlpack_device__")) {
    raw = fromDlpack(object, name, context);
  } else {
    throw py::type_error(
        message(name, " is of type ", Py_TYPE(object.ptr())->tp_name,
                "; pass a NumPy array or an object with __dlpack__, for example numpy.asarray(",
                name, ", dtype=numpy.float32)"));
  }
  requireBatchShape(raw.shape, name);
  return raw;
}

// A gapless float32 copy of an array in host memory, of any floating-point type and layout.
RawArray converted(const RawArray &raw, const char *name) {
  const py::dtype type = raw.array.dtype();
  if (type.kind() != 'f') refuseType(name, py::str(type).cast<std::string>());
  constexpr int kForm =
      py::array::c_style | py::array::forcecast | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  const auto copy = py::array_t<float, kForm>::ensure(raw.array);
  PULSORA_CHECK(InputError, copy, name, " has values beyond the range of float32; scale it");
  RawArray result = fromNumpy(copy);
  result.shape = raw.shape;
  return result;
}

void requireSameDevice(const RawArray &raw, const char *name, const Context &context) {
  if (raw.backend == Backend::Cpu) return;
  PULSORA_CHECK(DeviceError, !context.onCpu(), name, " is on cuda:", raw.device,
                ", but the tile is on the CPU; move the array with .cpu(), or create the tile with "
                "device='cuda'");
  PULSORA_CHECK(DeviceError, raw.device == context.device, name, " is on cuda:", raw.device,
                ", but the tile is on cuda:", context.device, "; move one to the other");
}

bool overlap(MatrixView<const float> a, MatrixView<const float> b) {
  if (a.size() == 0 || b.size() == 0) return false;
  const auto end = [](MatrixView<const float> m) {
    return m.data + (m.rows - 1) * m.rowStride + m.cols;
  };
  return a.data < end(b) && b.data < end(a);
}

}  // namespace

std::string describeShape(const std::vector<int64_t> &shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

bool isOfTorch(py::handle object) {
  return py::type::of(object).attr("__module__").cast<std::string>().rfind("torch", 0) == 0;
}

InputMatrix::InputMatrix(py::handle object, const char *name, const Context &context, bool ofTorch)
    : ofTorch_(ofTorch) {
  RawArray raw = readArray(object, name, context, ofTorch);
  requireSameDevice(raw, name, context);
  onHost_ = raw.backend == Backend::Cpu;
  isVector_ = raw.shape.size() == 1;
  if (!raw.isFloat32 || !raw.hasGaplessRows()) {
    PULSORA_CHECK(
        InputError, onHost_, name,
        " on a GPU must be float32 with gapless rows at an address for floats; convert it with "
        ".float().contiguous()");
    raw = converted(raw, name);
  }
  owner_ = raw.owner;
  view_ = raw.view<const float>();
  if (onHost_ && !context.onCpu()) {
    staged_ = Buffer<float>(context, view_.size());
    std::vector<float> packed;  // one copy takes a fraction of the time of a copy for each row
    if (!view_.isContiguous()) {
      packed.reserve(static_cast<size_t>(view_.size()));
      for (int64_t i = 0; i < view_.rows; ++i)
        packed.insert(packed.end(), view_.row(i).data, view_.row(i).data + view_.cols);
    }
    detail::copyFromHost(context, staged_.data(), packed.empty() ? view_.data : packed.data(),
                         static_cast<size_t>(view_.size()) * sizeof(float));
    view_ = rowMajor<const float>(staged_.data(), view_.rows, view_.cols);
  }
}

OutputMatrix::OutputMatrix(py::handle out, int64_t rows, int64_t cols, const InputMatrix &like,
                           const Context &context) {
  if (out.is_none()) {
    allocate(rows, cols, like.isVector(), like.onHost(), context);
  } else {
    const std::vector<int64_t> batch = {rows, cols};
    useGiven(out, {batch.begin() + (like.isVector() ? 1 : 0), batch.end()}, like.ofTorch(),
             context);
    PULSORA_CHECK(InputError, !overlap(view_, like.view()),
                  "out shares memory with the input; pass another array");
  }
}

OutputMatrix::OutputMatrix(int64_t rows, int64_t cols, const Context &context, py::handle out) {
  if (out.is_none()) {
    allocate(rows, cols, false, true, context);
  } else {
    useGiven(out, {rows, cols}, false, context);
  }
}

void OutputMatrix::allocate(int64_t rows, int64_t cols, bool squeezed, bool onHost,
                            const Context &context) {
  std::vector<int64_t> shape = {rows, cols};
  if (squeezed) shape.erase(shape.begin());
  if (onHost) {
    py::array_t<float> array(shape);
    host_ = rowMajor(array.mutable_data(), rows, cols);
    result_ = std::move(array);
    if (!context.onCpu()) staged_ = Buffer<float>(context, rows * cols);
    view_ = context.onCpu() ? host_ : rowMajor(staged_.data(), rows, cols);
  } else {
    DeviceArray array(context, shape);
    view_ = rowMajor(array.data(), rows, cols);
    result_ = py::cast(std::move(array));
  }
}

void OutputMatrix::useGiven(py::handle out, const std::vector<int64_t> &shape, bool ofTorch,
                            const Context &context) {
  RawArray raw = readArray(out, "out", context, ofTorch && isOfTorch(out));
  requireSameDevice(raw, "out", context);
  PULSORA_CHECK(InputError, raw.shape == shape, "out has shape ", describeShape(raw.shape),
                "; it must be ", describeShape(shape));
  PULSORA_CHECK(
      InputError, raw.isFloat32 && raw.isWritable && raw.hasGaplessRows(),
      "out must be a writable, aligned float32 array with gapless rows; leave it out to get "
      "a new one");
  const bool onHost = raw.backend == Backend::Cpu;
  PULSORA_CHECK(DeviceError, onHost == context.onCpu(),
                "out is in host memory, but the tile is on cuda:", context.device,
                "; leave it out to get a new array");
  view_ = raw.view<float>();
  result_ = py::reinterpret_borrow<py::object>(out);
}

py::object OutputMatrix::result(const Context &context) {
  if (!staged_.empty()) detail::copyToHost(context, host_.data, staged_.data(), staged_.bytes());
  return std::move(result_);
}

}  // namespace pulsora::bindings
