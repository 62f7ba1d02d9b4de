#include <string_view>

#include "core/check.h"
#include "fuzz_program.h"
#include "storage/json.h"

// Any bytes as JSON: refused as a whole, or read to a value that is written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace pulsora;
  Value value;
  try {
    value = parseJson({reinterpret_cast<const char *>(data), size});
  } catch (const StateError &) {
    return 0;
  }
  static_cast<void>(value.describe());
  require(parseJson(writeJson(value)) == value, "a value that is written reads back as another");
  return 0;
}
