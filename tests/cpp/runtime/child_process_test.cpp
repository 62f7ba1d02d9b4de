#include "runtime/child_process.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/check.h"
#include "runtime/included_files.h"
#include "runtime/interrupts.h"
#include "runtime/private_folder.h"

namespace pulsora {
namespace {

std::atomic<int> handled{0};
void countInterrupt(int) { ++handled; }

void *handlerNow() {
  struct sigaction now{};
  ::sigaction(SIGINT, nullptr, &now);
  return reinterpret_cast<void *>(now.sa_handler);
}

/// Sends SIGINT to this process as soon as its handler is another than `before`.
std::thread interrupter(void *before) {
  return std::thread([before] {
    while (handlerNow() == before) std::this_thread::yield();
    ::kill(::getpid(), SIGINT);
  });
}

TEST(ChildProcess, GivesOutputAndStatus) {
  const PrivateFolder folder;
  const Outcome made =
      runProgram({"/bin/sh", "-c", "echo one; echo two >&2; exit 3"}, folder.path(), {});
  EXPECT_EQ(made.status, 3);
  EXPECT_EQ(made.output, "one\ntwo\n");
  EXPECT_EQ(made.note, "");
  EXPECT_THROW(runProgram({"/nowhere/program"}, folder.path(), {}), CompileError);
  const Outcome killed = runProgram({"/bin/sh", "-c", "kill -9 $$"}, folder.path(), {});
  EXPECT_EQ(killed.status, -1);
  EXPECT_EQ(killed.output, "ended by signal 9\n");
}

TEST(ChildProcess, HasItsLimits) {
  const PrivateFolder folder;
  const Outcome made =
      runProgram({"/bin/sh", "-c", "ulimit -v; ulimit -t"}, folder.path(), {7.0, 1.5});
  EXPECT_EQ(made.output, "1464843\n8\n");  // in units of 1024 bytes; one second more
  EXPECT_THROW(runProgram({"/bin/sh", "-c", "sleep 100"}, folder.path(), {0.2, 4.0}), CompileError);
}

TEST(ChildProcess, EndsAtAnInterrupt) {
  const PrivateFolder folder;
  void *const before = handlerNow();
  for (const auto handler : {static_cast<void (*)(int)>(SIG_DFL), &countInterrupt}) {
    ::signal(SIGINT, handler);
    handled = 0;
    std::thread sender = interrupter(handlerNow());
    EXPECT_THROW(runProgram({"/bin/sh", "-c", "sleep 100"}, folder.path(), {}), CompileInterrupted);
    sender.join();
    EXPECT_EQ(handled, handler == &countInterrupt ? 1 : 0);
    EXPECT_EQ(handlerNow(), reinterpret_cast<void *>(handler));
  }
  ::signal(SIGINT, SIG_IGN);
  {
    const Interrupts none;
    ::kill(::getpid(), SIGINT);
    EXPECT_FALSE(none.raised());
  }
  ::signal(SIGINT, reinterpret_cast<void (*)(int)>(before));
}

TEST(ChildProcess, AnInterruptThatNobodyAskedForEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // threads of earlier tests may be in the way
  const auto ignoreIt = [] {
    ::signal(SIGINT, SIG_DFL);
    {
      const Interrupts outer;
      const Interrupts inner;
      ::raise(SIGINT);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(ignoreIt(), testing::KilledBySignal(SIGINT), "");
}

TEST(IncludedFiles, AreReadFromARuleForMake) {
  const std::vector<std::string> files = {"/tmp/a b.cpp", "/usr/include/c++/12/cmath", "x#$y.h"};
  EXPECT_EQ(filesOfRule("plugin: /tmp/a\\ b.cpp \\\n /usr/include/c++/12/cmath \\\n  x\\#$$y.h\n"),
            files);
  EXPECT_TRUE(filesOfRule("").empty());
  EXPECT_TRUE(filesOfRule("plugin:\n").empty());
}

TEST(IncludedFiles, LieInFoldersThatTheCompilerNames) {
  const std::vector<std::filesystem::path> folders = headerFolders(
      "#include \"...\" search starts here:\n /own\n#include <...> search starts here:\n"
      " /usr/lib/gcc/12/../../../include\n /System/Library (framework directory)\n"
      "End of search list.\n /later\n");
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_EQ(folders[1], "/System/Library");
  EXPECT_TRUE(isBelow("/usr/include/math.h", folders[0]));
  EXPECT_FALSE(isBelow("/usr/include/../own/math.h", folders[0]));
  EXPECT_FALSE(isBelow("/usr/include2/math.h", folders[0]));
  const PrivateFolder folder;
  const std::filesystem::path link = folder.path() / "link";
  std::filesystem::create_symlink("/usr/include", link);
  EXPECT_TRUE(isBelow("/usr/include/math.h", link));
  EXPECT_TRUE(isBelow(link / "math.h", folder.path()));
}

}  // namespace
}  // namespace pulsora
