#include "runtime/compiler.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "core/check.h"
#include "runtime/embedded_headers.h"
#include "runtime_options.h"

extern char **environ;

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

std::string readAll(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void writeAll(const fs::path &path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush())
    throw fs::filesystem_error("cannot be written", path,
                               std::make_error_code(std::errc::io_error));
}

/// The environment without variables that add header folders to a compiler's search, with temporary
/// files in `folder`, and with messages in English.
std::vector<std::string> environmentFor(const fs::path &folder) {
  std::vector<std::string> variables{"TMPDIR=" + folder.string(), "LC_ALL=C"};
  for (char **entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool kept = true;
    for (const char *left : {"TMPDIR", "LC_ALL", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"})
      kept = kept && name != left;
    if (kept) variables.emplace_back(text);
  }
  return variables;
}

std::vector<char *> pointers(std::vector<std::string> &texts) {
  std::vector<char *> list;
  list.reserve(texts.size() + 1);
  for (std::string &text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct Outcome {
  int status;  // 0 if the program succeeded
  std::string output;
};

/// Runs a program without a shell; its output goes through a file in `folder`.
Outcome runProgram(std::vector<std::string> command, const fs::path &folder) {
  const std::string log = (folder / "log").string();
  std::vector<std::string> variables = environmentFor(folder);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawn(&child, command.front().c_str(), &actions, nullptr,
                                 pointers(command).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  PULSORA_CHECK(CompileError, failed == 0, command.front(),
                " cannot be started: ", std::generic_category().message(failed));
  int status = 0;
  while (::waitpid(child, &status, 0) == -1) {
    // ECHILD: this process ignores its children's exit, so that only the output is known.
    if (errno != EINTR) return {errno == ECHILD ? 0 : -1, readAll(log)};
  }
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, readAll(log)};
  if (WIFSIGNALED(status)) outcome.output += message("ended by signal ", WTERMSIG(status), "\n");
  return outcome;
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
std::string plainFile(const PluginSource &source) {
  const std::string name = fs::path(source.file).filename().string();
  const bool plain = !name.empty() && name[0] != '.' && name[0] != '-' &&
                     name.find_first_of("\"\\\n") == name.npos && name != "plugin.cpp" &&
                     name != "log" && name != "include" && name != "rooms";
  return plain ? name : source.name + ".h";
}

}  // namespace

PrivateFolder::PrivateFolder() {
  const std::string base = variable("TMPDIR");
  std::string name = (fs::path(base.empty() ? "/tmp" : base) / "pulsora-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw fs::filesystem_error("no folder can be made here; set TMPDIR", name,
                               std::error_code(errno, std::generic_category()));
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

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
    PULSORA_CHECK(
        CompilerNotFound, !found.command.empty(),
        "there is no C++ compiler to compile a device model for the CPU: CXX is not set, and "
        "neither c++ nor g++ nor clang++ is on PATH",
        kInstall);
  }
  const PrivateFolder folder;
  std::vector<std::string> question = found.command;
  question.emplace_back("--version");
  const Outcome answer = runProgram(question, folder.path());
  PULSORA_CHECK(CompilerNotFound, answer.status == 0, found.command.front(),
                " does not answer to --version: ", answer.output, kInstall);
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

std::string compilePlugin(const HostCompiler &compiler, const PluginSource &source, Isa isa) {
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
  writeAll(unit, message("#include \"", file, "\"\n#include \"runtime/plugin.h\"\nPULSORA_PLUGIN(",
                         source.name, ", ", isaName(isa), ")\n"));
  const fs::path object = folder.path() / "plugin.so";
  std::vector<std::string> command = compiler.command;
  for (const std::string &option : pluginOptions(isa)) command.push_back(option);
  for (const fs::path &path : {rooms, include}) command.push_back("-I" + path.string());
  command.insert(command.end(), {unit.string(), "-o", object.string()});
  const Outcome outcome = runProgram(command, folder.path());
  PULSORA_CHECK(CompileError, outcome.status == 0 && fs::exists(object), "the device model '",
                source.name, "' in ", file, " does not compile. ", compiler.command.front(),
                " says:\n", readable(outcome.output, folder.path()));
  return readAll(object);
}

}  // namespace pulsora
