#include "runtime/plugin_cache.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "core/check.h"
#include "runtime/private_folder.h"

namespace pulsora {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct PluginCacheTest : ::testing::Test {
  PrivateFolder place;
  fs::path folder = place.path() / "some" / "cache";
  std::vector<std::string> warnings;

  PluginCache cache(uint64_t limit = PluginCache::kLimit) {
    return PluginCache(
        folder, [this](const std::string &text) { warnings.push_back(text); }, limit);
  }
  fs::path fileOf(const std::string &key) const { return folder / (key + ".plugin"); }
};

TEST_F(PluginCacheTest, GivesBackWhatWasStored) {
  const std::string body("\0\n body", 7);
  EXPECT_FALSE(cache().read("key"));
  EXPECT_FALSE(fs::exists(folder));  // nothing is made before something is to be stored
  cache().write("key", body);
  EXPECT_EQ(cache().read("key"), body);
  EXPECT_EQ(cache().readAny("k"), body);
  EXPECT_FALSE(cache().readAny("l"));
  EXPECT_FALSE(cache().read("ke"));
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PluginCacheTest, WhoCannotMakeAFileAnewLeavesADamagedOne) {
  cache().write("key-1", "body of a plugin");
  fs::permissions(fileOf("key-1"), fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(cache().readAny("key"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("it is not used"), std::string::npos);
  EXPECT_TRUE(fs::exists(fileOf("key-1")));
}

TEST_F(PluginCacheTest, ADamagedFileIsRemovedWithAWarning) {
  PluginCache stored = cache();
  stored.write("key", "body of a plugin");
  std::string whole;
  {
    std::ifstream in(fileOf("key"), std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const bool cut : {true, false}) {
      std::string damaged = cut ? whole.substr(0, i) : whole;
      if (!cut) damaged[i] = static_cast<char>(damaged[i] ^ 4);
      warnings.clear();
      std::ofstream(fileOf("key"), std::ios::binary) << damaged;
      EXPECT_FALSE(stored.read("key")) << i;
      EXPECT_EQ(warnings.size(), 1u) << i;
      EXPECT_FALSE(fs::exists(fileOf("key")));
      stored.write("key", "body of a plugin");
    }
  }
  fs::rename(fileOf("key"), fileOf("other"));
  EXPECT_FALSE(stored.read("other"));  // of another key
}

TEST_F(PluginCacheTest, FilesAndFoldersThatOthersCanWriteToAreNotUsed) {
  PluginCache stored = cache();
  stored.write("key", "body");
  fs::permissions(fileOf("key"), fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(stored.read("key"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("another user"), std::string::npos);
  stored.write("key", "body");
  fs::create_symlink(fileOf("key"), fileOf("link"));
  EXPECT_FALSE(stored.read("link"));
  fs::permissions(folder, fs::perms::group_write, fs::perm_options::add);
  EXPECT_THROW(cache(), ConfigError);
}

TEST_F(PluginCacheTest, AFifoInPlaceOfAFileIsRemoved) {
  PluginCache stored = cache();
  stored.write("key", "body");
  fs::remove(fileOf("key"));
  ASSERT_EQ(::mkfifo(fileOf("key").c_str(), 0600), 0);
  EXPECT_FALSE(stored.readAny("key"));
  EXPECT_FALSE(stored.read("key"));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("is no regular file; it is not used"), std::string::npos);
  EXPECT_NE(warnings[1].find("is no regular file; it is removed"), std::string::npos);
  EXPECT_FALSE(fs::exists(fileOf("key")));
}

TEST_F(PluginCacheTest, BeyondItsLimitThoseUsedLongestAgoGo) {
  PluginCache small = cache(3000);
  const std::string body(800, 'x');
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i) {
    small.write(std::to_string(i), body);
    fs::last_write_time(fileOf(std::to_string(i)), now - (10 - i) * 1h);
  }
  EXPECT_TRUE(small.read("0"));  // now the one used last
  small.write("3", body);
  EXPECT_TRUE(small.read("0"));
  EXPECT_FALSE(small.read("1"));
  EXPECT_TRUE(small.read("2"));
  EXPECT_TRUE(small.read("3"));
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PluginCacheTest, WhereNothingCanBeStoredOneWarningSaysSo) {
  folder = "/dev/null/cache";
  PluginCache none = cache();
  {
    const PluginCache::Lock lock(none, "key");
    none.write("key", "body");
    none.write("key", "body");
  }
  EXPECT_FALSE(none.read("key"));
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(PluginCacheTest, OneHoldsTheLockOfAKey) {
  PluginCache shared = cache();
  std::atomic<int> inside{0}, most{0};
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) {
      const PluginCache::Lock lock(shared, "key");
      const int now = ++inside;
      if (now > most) most = now;
      std::this_thread::sleep_for(100us);
      --inside;
    }
  };
  // Made before, so that the threads share what does not change.
  shared.write("key", "body");
  std::thread first(work), second(work);
  first.join();
  second.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace pulsora
