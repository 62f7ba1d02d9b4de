#include <string_view>

#include "fuzz_program.h"
#include "storage/state_file.h"

namespace pulsora {
namespace {

bool same(const Tensor &a, const Tensor &b) {
  return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
}

bool same(const State &a, const State &b) {
  if (a.values != b.values || a.tensors.size() != b.tensors.size()) return false;
  for (const auto &[name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || !same(tensor, other->second)) return false;
  }
  return true;
}

}  // namespace
}  // namespace pulsora

// Any bytes as the file of a state: refused, or read to a state that is written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace pulsora;
  State state;
  try {
    state = parseState({reinterpret_cast<const char *>(data), size});
  } catch (const StateError &) {
    return 0;
  }
  require(same(parseState(writeState(state)), state),
          "a state that is written reads back as another");
  return 0;
}
