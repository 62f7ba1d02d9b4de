#include "runtime/compiler.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "runtime/child_process.h"
#include "runtime/embedded_headers.h"
#include "runtime/included_files.h"
#include "runtime/private_folder.h"
#include "runtime_options.h"

namespace pulsora {
namespace {

namespace fs = std::filesystem;

constexpr const char *kInstall =
    "; install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; conda: conda "
    "install cxx-compiler), or set CXX to the path of one";
constexpr size_t kLongestLog = 20000;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> words(const std::string &text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// The path of a program, found like in a shell; empty if there is none.
std::string programPath(const std::string &name) {
  const auto usable = [](const fs::path &path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != name.npos) return usable(name) ? name : "";
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path path = fs::path(folder.empty() ? "." : folder) / name;
    if (usable(path)) return path.string();
  }
  return "";
}

void writeAll(const fs::path &path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush())
    throw fs::filesystem_error("cannot be written", path,
                               std::make_error_code(std::errc::io_error));
}

/// The log without the private folder's path, so that messages begin with the file's name.
std::string readable(std::string log, const fs::path &folder) {
  const std::string prefix = folder.string() + "/";
  for (size_t at = log.find(prefix); at != log.npos; at = log.find(prefix, at))
    log.erase(at, prefix.size());
  if (log.size() > kLongestLog) log = log.substr(0, kLongestLog) + "\n[...]";
  return log;
}

/// A name for the text that is valid as a plain file name.
std::string plainFile(const ModelSource &source) {
  const std::string name = fs::path(source.file).filename().string();
  bool plain = !name.empty() && name[0] != '.' && name[0] != '-' &&
               name.find_first_of("\"\\\n") == name.npos;
  for (const char *taken : {"plugin.cpp", "plugin.so", "rule", "log", "include", "rooms"})
    plain = plain && name != taken;
  return plain ? name : source.name + ".h";
}

/// The folders in which the compiler looks for headers of the system, without folders that flags in
/// $CXX add.
std::vector<fs::path> systemFolders(const HostCompiler &compiler, const fs::path &folder) {
  constexpr std::array<const char *, 5> kAdding = {"-I", "-isystem", "-iquote", "-idirafter",
                                                   "-include"};
  std::vector<std::string> question;
  bool skipped = false;  // the argument of the flag before
  for (const std::string &word : compiler.command) {
    const bool argument = std::exchange(skipped, false);
    const auto adds = [&](const char *flag) { return word.rfind(flag, 0) == 0; };
    const bool adding = std::any_of(kAdding.begin(), kAdding.end(), adds);
    skipped = !argument && adding &&
              std::any_of(kAdding.begin(), kAdding.end(), [&](auto flag) { return word == flag; });
    if (!argument && !adding) question.push_back(word);
  }
  question.insert(question.end(), {"-E", "-v", "-x", "c++", "/dev/null"});
  const Outcome answer = runProgram(question, folder, compileLimits());
  std::vector<fs::path> folders = headerFolders(answer.output);
  PULSORA_CHECK(CompileError, answer.status == 0 && !folders.empty(), compiler.command.front(),
                " does not say in which folders it looks for headers (-E -v); set CXX to another");
  return folders;
}

/// Refuses files that would be compiled into the model and never be looked at again.
void requireOwnIncludes(const HostCompiler &compiler, const ModelSource &source,
                        const fs::path &folder, const fs::path &rule) {
  std::vector<fs::path> allowed = systemFolders(compiler, folder);
  allowed.push_back(folder);
  const std::vector<std::string> files = filesOfRule(readAll(rule));
  PULSORA_CHECK(CompileError, !files.empty(), compiler.command.front(),
                " does not say which files it read (-MD); set CXX to another");
  for (const std::string &file : files) {
    const bool known = std::any_of(allowed.begin(), allowed.end(),
                                   [&](const fs::path &each) { return isBelow(file, each); });
    PULSORA_CHECK(
        CompileError, known, described(source), " includes ", readable(file, folder),
        ", which is neither a header of Pulsora nor in the compiler's folders of headers. "
        "A compiled model is found again by its text, so that changes of that file would "
        "not be noticed; paste its text into the source in place of the #include");
  }
}

}  // namespace

HostCompiler findHostCompiler() {
  HostCompiler found;
  found.command = words(variable("CXX"));
  if (!found.command.empty()) {
    const std::string path = programPath(found.command.front());
    PULSORA_CHECK(CompilerNotFound, !path.empty(), "CXX names the C++ compiler '",
                  found.command.front(), "', which is not there", kInstall);
    found.command.front() = path;
  } else {
    for (const char *name : {"c++", "g++", "clang++"}) {
      const std::string path = programPath(name);
      if (path.empty()) continue;
      found.command = {path};
      break;
    }
    PULSORA_CHECK(CompilerNotFound, !found.command.empty(),
                  "there is no C++ compiler to compile a model for the CPU: CXX is not set, and "
                  "neither c++ nor g++ nor clang++ is on PATH",
                  kInstall);
  }
  const PrivateFolder folder;
  std::vector<std::string> question = found.command;
  question.emplace_back("--version");
  const Outcome answer = runProgram(question, folder.path(), compileLimits());
  PULSORA_CHECK(CompilerNotFound, answer.status == 0, found.command.front(),
                " does not answer to --version: ", answer.note, answer.output, kInstall);
  found.version = answer.output;
  return found;
}

std::vector<std::string> pluginOptions(Isa isa) {
  constexpr std::array<const char *, 4> kIsaOptions = {
      PULSORA_ISA_OPTIONS_V2, PULSORA_ISA_OPTIONS_V3, PULSORA_ISA_OPTIONS_V4,
      PULSORA_ISA_OPTIONS_V4Popcnt};
  std::vector<std::string> options =
      words("-std=c++17 -O3 -DNDEBUG -fPIC -shared -fvisibility=hidden " PULSORA_NUMERICS_OPTIONS);
  // Earlier names of the namespace and of a macro, which texts in saved states have.
  for (const char *option : {"-DRPU=pulsora", "-DRPU_HD=PULSORA_HD"}) options.emplace_back(option);
#ifdef __linux__
  // No undefined symbols, and no dependency on unused libraries.
  for (const char *option : {"-Wl,-z,defs", "-Wl,--as-needed", "-Wl,--strip-all"})
    options.emplace_back(option);
#endif
  for (const std::string &option : words(kIsaOptions[static_cast<size_t>(isa)]))
    options.push_back(option);
  return options;
}

std::string compilePlugin(const HostCompiler &compiler, const ModelSource &source, Isa isa) {
  removeAbandonedFolders();
  const PrivateFolder folder;
  // Headers name each other by their rooms. Models say <pulsora/name.h>, or <pulsora/room/name.h>.
  // The rooms are a folder of their own: a search path with our math.h would hide the system's.
  const fs::path rooms = folder.path() / "rooms", include = folder.path() / "include";
  fs::create_directories(include / "pulsora");
  for (const EmbeddedHeader &header : embeddedHeaders()) {
    const std::string name = header.path;
    const fs::path path = (name.rfind("pulsora/", 0) == 0 ? include : rooms) / name;
    fs::create_directories(path.parent_path());
    writeAll(path, header.text);
  }
  for (const auto &room : fs::directory_iterator(rooms))
    fs::create_directory_symlink(room, include / "pulsora" / room.path().filename());
  const std::string file = plainFile(source);
  writeAll(folder.path() / file, source.text);
  const fs::path unit = folder.path() / "plugin.cpp";
  const ModelKindFacts &kind = factsOf(source.kind);
  writeAll(unit, message("#include \"", file, "\"\n#include \"", kind.plugin, "\"\n", kind.macro,
                         "(", source.name, ", ", isaName(isa), ")\n"));
  const fs::path object = folder.path() / "plugin.so";
  std::vector<std::string> command = compiler.command;
  for (const std::string &option : pluginOptions(isa)) command.push_back(option);
  for (const fs::path &path : {rooms, include}) command.push_back("-I" + path.string());
  const fs::path rule = folder.path() / "rule";
  command.insert(command.end(), {"-MD", "-MF", rule.string(), "-MT", "plugin"});
  command.insert(command.end(), {unit.string(), "-o", object.string()});
  const Outcome outcome = runProgram(command, folder.path(), compileLimits());
  PULSORA_CHECK(CompileError, outcome.status == 0 && fs::exists(object), described(source), " in ",
                file, " does not compile. ", outcome.note, compiler.command.front(), " says:\n",
                readable(outcome.output, folder.path()));
  requireOwnIncludes(compiler, source, folder.path(), rule);
  return readAll(object);
}

}  // namespace pulsora
