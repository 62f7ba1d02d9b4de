#include "runtime/compile_limits.h"

#include <cstdlib>
#include <locale>
#include <sstream>

#include "core/check.h"

namespace pulsora {
namespace {

double limitFrom(const char *name, double usual, double least, double most) {
  const char *value = std::getenv(name);
  const std::string text = value ? value : "";
  if (text.empty()) return usual;
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  double number = 0.0;
  const bool read = (in >> number) && in.peek() == std::istringstream::traits_type::eof();
  PULSORA_CHECK(ConfigError, read && number >= least && number <= most, name, " is '",
                text.substr(0, 100), "'; set it to a number from ", least, " to ", most,
                ", or leave it out for ", usual);
  return number;
}

}  // namespace

CompileLimits compileLimits() {
  const CompileLimits usual;
  return {limitFrom("PULSORA_COMPILE_SECONDS", usual.seconds, 1.0, 43200.0),
          limitFrom("PULSORA_COMPILE_GIGABYTES", usual.gigabytes, 0.1, 100000.0)};
}

}  // namespace pulsora
