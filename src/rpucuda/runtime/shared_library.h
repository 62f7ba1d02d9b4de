#pragma once

#include <string>
#include <vector>

namespace pulsora {

/// A shared library, loaded when first needed and never unloaded, so that programs start without
/// it.
class SharedLibrary {
 public:
  /// Opens the first of `names` that can be loaded; a name is a path, or is looked up by the
  /// system.
  static SharedLibrary open(const std::vector<std::string> &names);

  explicit operator bool() const { return handle_ != nullptr; }
  /// The name under which the library was loaded.
  const std::string &name() const { return name_; }
  /// The reason why no library could be loaded.
  const std::string &problem() const { return problem_; }
  /// Sets `function` to the function called `name`, or null.
  template <class Function>
  void find(Function *&function, const char *name) const {
    function = reinterpret_cast<Function *>(symbol(name));
  }

 private:
  void *symbol(const char *name) const;

  void *handle_ = nullptr;
  std::string name_;
  std::string problem_;
};

}  // namespace pulsora
