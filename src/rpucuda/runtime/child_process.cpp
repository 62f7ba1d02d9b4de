#include "runtime/child_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/check.h"
#include "runtime/interrupts.h"

extern char **environ;

namespace pulsora {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

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

/// Arguments of the new process, made before the fork: between fork and exec it may call only
/// functions that are safe in signal handlers.
struct Start {
  char *const *arguments;
  char *const *environment;
  const char *log;
  int report;  // a pipe that takes errno if the program cannot be started
  rlim_t memory;
  rlim_t seconds;
  sigset_t signals;
};

void limit(decltype(RLIMIT_AS) resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return;
  now.rlim_max = std::min(now.rlim_max, most);
  now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
  ::setrlimit(resource, &now);
}

[[noreturn]] void become(const Start &start) {
  for (int each = 1; each < NSIG; ++each) {
    struct sigaction action{};
    const bool handled = ::sigaction(each, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
    if (handled) ::signal(each, SIG_DFL);
  }
  ::setpgid(0, 0);  // a group, which can be ended as a whole
  limit(RLIMIT_AS, start.memory);
  limit(RLIMIT_CPU, start.seconds);  // holds also if this process's parent is killed
  const int input = ::open("/dev/null", O_RDONLY);
  const int output = ::open(start.log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (input >= 0 && output >= 0 && ::dup2(input, 0) == 0 && ::dup2(output, 1) == 1 &&
      ::dup2(output, 2) == 2) {
    ::pthread_sigmask(SIG_SETMASK, &start.signals, nullptr);
    ::execve(start.arguments[0], start.arguments, start.environment);
  }
  const int problem = errno;
  static_cast<void>(!::write(start.report, &problem, sizeof problem));
  ::_exit(127);
}

/// Starts the program and returns its process. CompileError if it cannot be started.
pid_t started(const std::vector<std::string> &command, const fs::path &folder,
              const CompileLimits &limits) {
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environmentFor(folder);
  const std::vector<char *> arguments = pointers(words);
  const std::vector<char *> environment = pointers(variables);
  const std::string log = (folder / "log").string();
  int report[2] = {-1, -1};
  int problem = 0;
  pid_t child = -1;
  if (::pipe(report) == 0) {
    for (const int end : report) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    Start start{arguments.data(),
                environment.data(),
                log.c_str(),
                report[1],
                static_cast<rlim_t>(limits.gigabytes * 1e9),
                static_cast<rlim_t>(std::ceil(limits.seconds)) + 1,
                {}};
    // Handlers of this process must not run in the new one.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &start.signals);
    child = ::fork();
    if (child == 0) become(start);
    problem = child < 0 ? errno : 0;
    ::pthread_sigmask(SIG_SETMASK, &start.signals, nullptr);
    ::close(report[1]);
    if (child > 0) {
      ::setpgid(child, child);  // in both processes, so that it is done for either
      ssize_t got = -1;
      do {
        got = ::read(report[0], &problem, sizeof problem);
      } while (got == -1 && errno == EINTR);
      if (got != sizeof problem) problem = 0;
    }
    ::close(report[0]);
  } else {
    problem = errno;
  }
  if (problem != 0 && child > 0) ::waitpid(child, nullptr, 0);
  PULSORA_CHECK(CompileError, problem == 0, command.front(),
                " cannot be started: ", std::generic_category().message(problem));
  return child;
}

/// Ends the program and all that it started.
void end(pid_t child) {
  ::kill(-child, SIGKILL);
  while (::waitpid(child, nullptr, 0) == -1 && errno == EINTR) {
  }
}

bool lackedMemory(const std::string &output) {
  for (const char *words : {"out of memory", "memory exhausted", "annot allocate memory",
                            "bad_alloc", "Killed signal", "failed to map segment"}) {
    if (output.find(words) != output.npos) return true;
  }
  return false;
}

}  // namespace

std::string readAll(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Outcome runProgram(const std::vector<std::string> &command, const fs::path &folder,
                   const CompileLimits &limits) {
  const Interrupts interrupts;
  const auto latest = Clock::now() + std::chrono::duration<double>(limits.seconds);
  const pid_t child = started(command, folder, limits);
  int status = 0;
  for (int round = 0;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended == -1 && errno != EINTR) {
      // ECHILD: this process ignores its children's exit, so that only the output is known.
      return {errno == ECHILD ? 0 : -1, readAll(folder / "log"), ""};
    }
    const bool late = Clock::now() > latest;
    if (late || interrupts.raised()) {
      end(child);
      PULSORA_CHECK(CompileError, !late, command.front(), " was ended after ", limits.seconds,
                    " seconds, the limit that PULSORA_COMPILE_SECONDS sets");
      break;
    }
    waitBriefly(round);
  }
  PULSORA_CHECK(CompileInterrupted, !interrupts.raised(), command.front(),
                " was ended by SIGINT; nothing has changed");
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, readAll(folder / "log"), ""};
  if (WIFSIGNALED(status)) outcome.output += message("ended by signal ", WTERMSIG(status), "\n");
  if (outcome.status != 0 && lackedMemory(outcome.output))
    outcome.note = message("It may use ", limits.gigabytes,
                           " gigabytes of memory, the limit that PULSORA_COMPILE_GIGABYTES sets. ");
  return outcome;
}

}  // namespace pulsora
