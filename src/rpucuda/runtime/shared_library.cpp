#include "runtime/shared_library.h"

#include <dlfcn.h>

namespace pulsora {

SharedLibrary SharedLibrary::open(const std::vector<std::string> &names) {
  SharedLibrary library;
  for (const std::string &name : names) {
    library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_) {
      library.name_ = name;
      return library;
    }
    const char *problem = ::dlerror();
    if (library.problem_.empty() && problem) library.problem_ = problem;
  }
  return library;
}

void *SharedLibrary::symbol(const char *name) const {
  return handle_ ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace pulsora
