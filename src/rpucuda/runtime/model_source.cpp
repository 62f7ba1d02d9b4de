#include "runtime/model_source.h"

#include <set>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace pulsora {
namespace {

constexpr size_t kLongestName = 100;

/// Whether the text is a capital letter, then letters and digits, kLongestName at most.
bool isPlainName(const std::string &text) {
  const auto isIn = [](char letter, char first, char last) {
    return letter >= first && letter <= last;
  };
  bool plain = !text.empty() && text.size() <= kLongestName && isIn(text[0], 'A', 'Z');
  for (const char each : text)
    plain = plain && (isIn(each, 'A', 'Z') || isIn(each, 'a', 'z') || isIn(each, '0', '9'));
  return plain;
}

/// A text for messages, cut where it is longer than a name.
std::string shortened(const std::string &text) {
  return text.size() <= kLongestName ? text : text.substr(0, kLongestName) + "[...]";
}

constexpr const char *kSpaces = " \t\n\v\f\r";

/// The texts NAME of all `kName = "NAME"`.
std::set<std::string> namesIn(const std::string &text) {
  constexpr std::string_view kWord = "kName";
  std::set<std::string> names;
  // Position behind spaces and `letter`, or npos.
  const auto behind = [&](size_t at, char letter) {
    at = text.find_first_not_of(kSpaces, at);
    return at != text.npos && text[at] == letter ? at + 1 : text.npos;
  };
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at)) {
    at += kWord.size();
    size_t first = behind(at, '=');
    if (first != text.npos) first = behind(first, '"');
    if (first == text.npos) continue;
    const size_t end = text.find('"', first);
    if (end == text.npos) break;
    names.insert(text.substr(first, end - first));
    at = end + 1;
  }
  return names;
}

}  // namespace

const ModelKindFacts &factsOf(ModelKind kind) {
  static const ModelKindFacts kDevice = {
      "device model",
      "examples/05_custom_device",
      "pulsora.devices.from_source",
      "runtime/plugin.h",
      "PULSORA_PLUGIN",
      "cuda/array/model_kernels.cuh",
      // The names of gpu::ModelKernel, in order.
      {"Construct", "Describe", "Balance", "Relax", "Reset", "Write", "PulseLines", "TapLines",
       "Program", "UpdateOne", "UpdateTwo", "UpdateMost", "MergeRows", "MergeTiles", "Deferred"}};
  static const ModelKindFacts kNoise = {"noise model",
                                        "examples/27_custom_noise_model",
                                        "pulsora.noise_models.from_source",
                                        "runtime/plugin_noise.h",
                                        "PULSORA_NOISE_PLUGIN",
                                        "cuda/noise_models/realise_kernel.cuh",
                                        {"Realise"}};
  return kind == ModelKind::Device ? kDevice : kNoise;
}

std::string described(const ModelSource &source) {
  return message("the ", factsOf(source.kind).what, " '", source.name, "'");
}

ModelSource normalised(ModelSource source) {
  std::string text;
  for (size_t i = 0; i < source.text.size(); ++i) {
    const bool windows =
        source.text[i] == '\r' && i + 1 < source.text.size() && source.text[i + 1] == '\n';
    if (!windows) text += source.text[i];
  }
  source.text = std::move(text);
  const ModelKindFacts &kind = factsOf(source.kind);
  if (source.name.empty()) {
    const std::set<std::string> names = namesIn(source.text);
    std::string list;
    for (const std::string &name : names)
      list += (list.empty() ? "'" : ", '") + shortened(name) + "'";
    PULSORA_CHECK(ConfigError, !names.empty(), "the source of a ", kind.what,
                  " has no `static constexpr const char *kName = "
                  "\"its name\";`; see ",
                  kind.example, " for what a model states");
    PULSORA_CHECK(ConfigError, names.size() == 1, "the source of a ", kind.what, " has the names ",
                  list, "; say which struct is meant by name=");
    source.name = *names.begin();
  }
  PULSORA_CHECK(ConfigError, isPlainName(source.name), "name is '", shortened(source.name),
                "'; the name of a ", kind.what,
                " is that of its struct, begins with a capital letter and "
                "has letters and digits alone, 100 at most, such as MyStep");
  return source;
}

}  // namespace pulsora
