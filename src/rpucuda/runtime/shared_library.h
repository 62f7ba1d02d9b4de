#pragma once

#include <string>
#include <vector>

namespace pulsora {

/// A library that is looked for when it is first needed, and kept for good, so that programs start
/// where it is not there.
class SharedLibrary {
 public:
  /// The first of `names` that can be loaded; each is a path, or a name that the system looks up.
  static SharedLibrary open(const std::vector<std::string> &names);

  explicit operator bool() const { return handle_ != nullptr; }
  /// What it was found as.
  const std::string &name() const { return name_; }
  /// Why there is none.
  const std::string &problem() const { return problem_; }
  /// Sets `function` to the one of that name, null if there is none.
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
