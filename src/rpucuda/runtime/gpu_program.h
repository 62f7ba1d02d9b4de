#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

// Code for a GPU that was compiled at run time (runtime/nvrtc.h): loaded, launched, given memory.
// It works in any build of the library, on any machine with a driver; without one, each function
// throws DeviceError.
//
//   const GpuBinary made = compileForGpu({text, "add.cu", {}, {"add"}}, gpuArchitecture(0));
//   const GpuProgram program(made.code, 0);
//   const GpuFunction add = program.function(made.names.at("add"), {"float32*", "int64"});
//   GpuArray a = GpuArray::zeros("float32", 1000, 0);
//   add.launch({{8}, {128}}, {a, int64_t{1000}});

namespace pulsora {

/// The architecture of a GPU, such as "sm_90".
std::string gpuArchitecture(int device);

/// A CUDA stream, synchronised with the legacy default stream. Destroyed once its work is done.
class GpuStream {
 public:
  explicit GpuStream(int device);
  void *handle() const { return handle_.get(); }
  int device() const { return device_; }
  /// Waits for the stream's work. DeviceError if the work failed.
  void synchronize() const;

 private:
  int device_;
  std::shared_ptr<void> handle_;
};

/// Numbers in the memory of a GPU. Copies of the object share the memory. Types are "int8" to
/// "int64", "uint8" to "uint64", "bool", "float16", "float32" and "float64".
class GpuArray {
 public:
  static GpuArray zeros(const std::string &type, int64_t size, int device, void *stream = nullptr);
  /// OutOfMemoryError if there is no room. The caller may change `from` again when upload()
  /// returns.
  static GpuArray upload(const std::string &type, const void *from, int64_t size, int device,
                         void *stream = nullptr);
  /// Waits for the stream's work, and copies all numbers.
  void download(void *to, void *stream = nullptr) const;

  const std::string &type() const { return type_; }
  int64_t size() const { return size_; }
  size_t bytes() const;
  int device() const { return device_; }
  void *data() const { return data_.get(); }

 private:
  GpuArray(std::string type, int64_t size, int device);

  std::string type_;
  int64_t size_;
  int device_;
  std::shared_ptr<void> data_;
};

/// Bytes of a number of that type; ConfigError if there is no such type.
size_t sizeOfGpuType(const std::string &type);

/// An argument of a launch: a number, or an array.
class GpuArgument {
 public:
  GpuArgument(bool value) : GpuArgument("bool", value) {}
  GpuArgument(int32_t value) : GpuArgument("int32", value) {}
  GpuArgument(uint32_t value) : GpuArgument("uint32", value) {}
  GpuArgument(int64_t value) : GpuArgument("int64", value) {}
  GpuArgument(uint64_t value) : GpuArgument("uint64", value) {}
  GpuArgument(float value) : GpuArgument("float32", value) {}
  GpuArgument(double value) : GpuArgument("float64", value) {}
  GpuArgument(const GpuArray &array) : GpuArgument(array.type() + "*", array.data()) {
    device_ = array.device();
  }
  /// A number of any type, or a pointer to memory of GPU `device`, by its bytes. InputError for
  /// more bytes than a parameter has.
  static GpuArgument ofBytes(std::string type, std::string_view bytes, int device = -1);
  template <class T>
  GpuArgument(std::string type, T value) : type_(std::move(type)) {
    static_assert(sizeof(T) <= sizeof value_, "a number or a pointer");
    *reinterpret_cast<T *>(value_) = value;
  }

  /// "float32" for a number, "float32*" for an array.
  const std::string &type() const { return type_; }
  const void *value() const { return value_; }
  /// Device of an array; -1 for a number.
  int device() const { return device_; }

 private:
  std::string type_;
  alignas(8) char value_[8] = {};
  int device_ = -1;
};

/// Blocks of a launch, threads of a block, and bytes of shared memory besides those that the kernel
/// declares.
struct GpuGrid {
  struct Extent {
    int64_t x = 1;
    int64_t y = 1;
    int64_t z = 1;
  };
  Extent blocks;
  Extent threads;
  int64_t sharedBytes = 0;
};

namespace detail {
struct LoadedCode;
}

/// A kernel on one GPU.
class GpuFunction {
 public:
  const std::string &name() const { return name_; }
  const std::vector<std::string> &types() const { return types_; }

  /// Enqueues the kernel. InputError if types or number of the arguments differ from the
  /// function's, or if they are on another GPU; ConfigError, naming the extent, if the grid is not
  /// possible.
  void launch(const GpuGrid &grid, const std::vector<GpuArgument> &arguments,
              void *stream = nullptr) const;
  /// Like launch(), on the current device, for arguments given as bytes. Its blocks may start
  /// before earlier work has ended (see cuda/core/await.cuh).
  void launchRaw(const GpuGrid &grid, const void *const *arguments, const uint64_t *sizes,
                 size_t count, void *stream) const;

 private:
  friend class GpuProgram;
  GpuFunction() = default;
  void enqueue(const GpuGrid &grid, const void *const *arguments, void *stream,
               bool overlaps) const;
  void requireGrid(const GpuGrid &grid) const;

  std::shared_ptr<const detail::LoadedCode> code_;
  void *function_ = nullptr;
  std::string name_;
  std::vector<std::string> types_;
  std::vector<size_t> sizes_;  // of the parameters, valid if `knowsSizes_`
  bool knowsSizes_ = false;
  bool overlaps_ = false;
  int device_ = 0;
  int mostThreads_ = 0;
  int64_t mostShared_ = 0;
};

/// Loaded code, unloaded with the last of its functions.
class GpuProgram {
 public:
  /// Loads a cubin or PTX. CompileError if the GPU cannot run it.
  GpuProgram(std::string_view code, int device);

  /// The kernel of that name in the code. ConfigError if there is none, or if its parameters do not
  /// have the sizes of `types`, such as "int64", "float32", "float32*" or "void*".
  GpuFunction function(const std::string &name, std::vector<std::string> types) const;
  /// The kernel without types, for launchRaw().
  GpuFunction function(const std::string &name) const;

 private:
  std::shared_ptr<const detail::LoadedCode> code_;
};

}  // namespace pulsora
