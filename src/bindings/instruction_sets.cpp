#include "instruction_sets.h"

#include <pybind11/stl.h>
#include <vector>

#include "core/check.h"
#include "core/isa_dispatch.h"
#include "parameters/field.h"

namespace pulsora::bindings {
namespace {

constexpr Isa kAll[] = {Isa::V2, Isa::V3, Isa::V4, Isa::V4Popcnt};

std::vector<std::string> compiledIsas() {
  std::vector<std::string> names;
  for (const Isa isa : kAll) {
    if (isa <= kLastIsa) names.emplace_back(isaName(isa));
  }
  return names;
}

std::vector<std::string> supportedNames() {
  std::vector<std::string> names;
  for (const Isa isa : supportedIsas()) names.emplace_back(isaName(isa));
  return names;
}

}  // namespace

Isa isaNamed(const std::string &name) {
  if (name.empty()) return bestIsa();
  std::vector<std::string> names;
  for (const Isa isa : kAll) {
    if (name == isaName(isa)) return isa;
    names.emplace_back(isaName(isa));
  }
  throw ConfigError(
      message("isa is '", name, "', which is no instruction set", suggest(name, names)));
}

void bindInstructionSets(pybind11::module_ &module) {
  module.def("instruction_sets", &supportedNames,
             "Instruction sets that are compiled in and that this machine has, from the plainest "
             "to the one in use.");
  module.def("compiled_instruction_sets", &compiledIsas,
             "Instruction sets that are compiled in, from the plainest to the best.");
}

}  // namespace pulsora::bindings
