#include "storage/atomic_write.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pulsora {
namespace {

namespace fs = std::filesystem;

class ReplaceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pulsora_replace_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path at(const std::string &name) const { return folder_ / name; }
  void write(const std::string &name, const std::string &text) const {
    std::ofstream(at(name)) << text;
  }
  std::string content(const std::string &name) const {
    std::ifstream file(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto &each : fs::directory_iterator(folder_))
      found.push_back(each.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  mode_t modeOf(const std::string &name) const {
    struct stat status{};
    EXPECT_EQ(::stat(at(name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  std::error_code errorOf(const fs::path &path) const {
    try {
      replaceFile(path.string(), {"new"});
    } catch (const fs::filesystem_error &error) {
      return error.code();
    }
    return {};
  }

  fs::path folder_;
};

TEST_F(ReplaceFile, WritesAllPartsAndLeavesNothingElse) {
  replaceFile(at("a"), {"one ", "", "two"});
  EXPECT_EQ(content("a"), "one two");
  replaceFile(at("a"), {});
  EXPECT_EQ(content("a"), "");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(ReplaceFile, AnyNameThatAFileCanHave) {
  const std::string longest(255, 'x');
  for (const std::string &name : {longest, std::string("\xFF\n"), std::string("-")}) {
    replaceFile(at(name), {"new"});
    EXPECT_EQ(content(name), "new");
  }
  EXPECT_EQ(errorOf(at(longest + "x")), std::errc::filename_too_long);
  EXPECT_EQ(errorOf(at(std::string("a\0b", 3))), std::errc::invalid_argument);
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(ReplaceFile, ModesAreKeptAndNewFilesHaveTheUsualOne) {
  const mode_t mask = ::umask(027);
  replaceFile(at("new"), {"x"});
  ::umask(mask);
  EXPECT_EQ(modeOf("new"), 0640U);
  for (const mode_t mode : {0600U, 0604U, 0666U}) {
    ::chmod(at("new").c_str(), mode);
    replaceFile(at("new"), {"y"});
    EXPECT_EQ(modeOf("new"), mode);
  }
}

TEST_F(ReplaceFile, TheFileBehindALinkIsReplaced) {
  fs::create_directory(at("there"));
  write("there/file", "old");
  fs::create_symlink("there/file", at("relative"));
  fs::create_symlink(at("relative"), at("absolute"));
  replaceFile(at("absolute"), {"new"});
  EXPECT_TRUE(fs::is_symlink(at("absolute")) && fs::is_symlink(at("relative")));
  EXPECT_EQ(content("there/file"), "new");
  fs::remove(at("there/file"));
  replaceFile(at("relative"), {"newer"});  // also where nothing is behind it yet
  EXPECT_EQ(content("there/file"), "newer");
  fs::create_symlink("round", at("round"));
  EXPECT_EQ(errorOf(at("round")), std::errc::too_many_symbolic_link_levels);
}

TEST_F(ReplaceFile, WhatIsNoFileIsRefused) {
  fs::create_directory(at("folder"));
  EXPECT_EQ(errorOf(at("folder")), std::errc::is_a_directory);
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_EQ(errorOf(at("fifo")), std::errc::invalid_argument);
  EXPECT_EQ(errorOf(at("nowhere/file")), std::errc::no_such_file_or_directory);
  EXPECT_EQ(errorOf(""), std::errc::no_such_file_or_directory);
  EXPECT_EQ(names(), (std::vector<std::string>{"fifo", "folder"}));
}

TEST_F(ReplaceFile, AFailedWriteLeavesTheOldFileAlone) {
  write("a", "old");
  struct rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = limit;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string large(5000, 'x');
  EXPECT_THROW(replaceFile(at("a"), {large}), std::system_error);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(ReplaceFile, ManyWritersOfOnePathTearNothing) {
  constexpr int kWriters = 4;
  constexpr size_t kBytes = 200000;
  replaceFile(at("a"), {std::string(kBytes, 'a')});
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const std::string text(kBytes, static_cast<char>('a' + writer));
      for (int i = 0; i < 20; ++i) replaceFile(at("a"), {text});
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string text = content("a");
    ASSERT_EQ(text, std::string(kBytes, text[0]));
  }
  for (std::thread &writer : writers) writer.join();
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace pulsora
