#include "parameters/value.h"

#include "core/check.h"

namespace pulsora {

std::string Value::describe() const {
  if (isNull()) return "None";
  if (const auto *v = boolean()) return *v ? "True" : "False";
  if (const auto *v = integer()) return message(*v);
  if (const auto *v = real()) return message(*v);
  if (const auto *v = text()) return "'" + *v + "'";
  if (const auto *v = list()) {
    std::string out = "[";
    for (size_t i = 0; i < v->size() && i < 8; ++i) {
      out += (i ? ", " : "") + (*v)[i].describe();
    }
    return out + (v->size() > 8 ? ", ...]" : "]");
  }
  return "{...}";
}

}  // namespace pulsora
