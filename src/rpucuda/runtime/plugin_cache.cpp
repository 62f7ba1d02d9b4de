#include "runtime/plugin_cache.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/check.h"
#include "runtime/interrupts.h"
#include "storage/atomic_write.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFormat = "pulsora plugin 1\n";
constexpr const char *kSuffix = ".plugin";
constexpr const char *kLockSuffix = ".lock";

std::string reason(int error) { return std::generic_category().message(error); }

std::string headerOf(const std::string &key, std::string_view body) {
  return kFormat + key + "\n" + sha256(body) + "\n";
}

/// Whether only this user can have written the file or folder.
bool isOurs(const struct stat &status) {
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

struct Entry {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

/// The files of a cache that begin with `start`, the one used longest ago first.
std::vector<Entry> entriesOf(const fs::path &folder, const std::string &start) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const fs::path path = each->path();
    if (path.extension() != kSuffix || path.filename().string().rfind(start, 0) != 0) continue;
    std::error_code gone;  // another process may have removed the file
    const Entry entry{path, fs::file_size(path, gone), fs::last_write_time(path, gone)};
    if (!gone) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.used < b.used; });
  return entries;
}

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

PluginCache::PluginCache(fs::path folder, Warn warn, uint64_t limit)
    : folder_(std::move(folder)), warn_(std::move(warn)), limit_(limit), stores_(!folder_.empty()) {
  struct stat status{};
  if (!stores_ || ::stat(folder_.c_str(), &status) != 0) return;
  PULSORA_CHECK(ConfigError, isOurs(status), "the cache folder ", folder_.string(),
                status.st_uid == ::geteuid() ? " may be written to by other users"
                                             : " belongs to another user",
                ", and compiled device models in it would be run; use a folder of your own (chmod "
                "go-w), or name another by PULSORA_CACHE_DIR");
}

fs::path PluginCache::defaultFolder() {
  if (const std::string own = variable("PULSORA_CACHE_DIR"); !own.empty()) return fs::absolute(own);
  if (const std::string base = variable("XDG_CACHE_HOME"); !base.empty() && base[0] == '/')
    return fs::path(base) / "pulsora";
  if (const std::string home = variable("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "pulsora";
  return {};
}

fs::path PluginCache::fileOf(const std::string &key) const { return folder_ / (key + kSuffix); }

std::optional<std::string> PluginCache::usable(const std::string &key, std::string &why) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = fileOf(key);
  struct stat status{};
  // A fifo in place of the file is opened at once, and is no regular file.
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  why = "cannot be read";
  if (file >= 0 && ::fstat(file, &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      why = "is no regular file";
    } else if (isOurs(status)) {
      std::string bytes(static_cast<size_t>(status.st_size), '\0');
      size_t count = 0;
      for (ssize_t got = 1; got > 0 && count < bytes.size();) {
        got = ::read(file, &bytes[count], bytes.size() - count);
        if (got > 0) count += static_cast<size_t>(got);
      }
      const size_t length = headerOf(key, "").size();
      if (count == bytes.size() && count >= length &&
          bytes.compare(0, length, headerOf(key, std::string_view(bytes).substr(length))) == 0) {
        ::futimens(file, nullptr);  // marks the file as used now, where allowed
        ::close(file);
        why.clear();
        return bytes.substr(length);
      }
      why = "is damaged";
    } else {
      why = "could have been written by another user";
    }
  }
  if (file >= 0) ::close(file);
  return std::nullopt;
}

std::optional<std::string> PluginCache::read(const std::string &key) {
  std::string why;
  std::optional<std::string> body = usable(key, why);
  if (!why.empty()) drop(key, why);
  return body;
}

std::optional<std::string> PluginCache::readAny(const std::string &start) {
  const std::vector<Entry> entries = entriesOf(folder_, start);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::string why;
    if (auto body = usable(entry->path.stem().string(), why)) return body;
    if (!why.empty())
      warn_(message("the compiled device model ", entry->path.string(), " ", why,
                    "; it is not used"));
  }
  return std::nullopt;
}

void PluginCache::drop(const std::string &key, const std::string &why) {
  const fs::path path = fileOf(key);
  std::error_code error;
  fs::remove(path, error);
  warn_(message("the compiled device model ", path.string(), " ", why,
                error ? "; it is not used" : "; it is removed and made anew"));
}

void PluginCache::cannotStore(const std::string &why) {
  if (stores_)
    warn_(message("compiled device models cannot be stored in ", folder_.string(), " (", why,
                  "), and are compiled again by each process; name another folder by "
                  "PULSORA_CACHE_DIR"));
  stores_ = false;
}

/// Makes the folder and its parents.
bool PluginCache::makeFolder() {
  if (!stores_) return false;
  fs::path path;
  for (const fs::path &part : fs::absolute(folder_)) {
    path /= part;
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST || ::access(path.c_str(), F_OK) == 0)
      continue;
    cannotStore(reason(errno));
    return false;
  }
  return true;
}

void PluginCache::write(const std::string &key, std::string_view body) {
  if (!makeFolder()) return;
  try {
    replaceFile(fileOf(key).string(), {headerOf(key, body), body}, 0600);
  } catch (const fs::filesystem_error &error) {
    cannotStore(error.code().message());
    return;
  }
  removeOldest(fileOf(key));
}

void PluginCache::removeOldest(const fs::path &newest) {
  const std::vector<Entry> entries = entriesOf(folder_, "");
  uint64_t bytes = 0;
  for (const Entry &entry : entries) bytes += entry.bytes;
  for (const Entry &entry : entries) {
    if (bytes <= limit_) return;
    if (entry.path == newest) continue;
    std::error_code error;
    if (fs::remove(entry.path, error)) bytes -= entry.bytes;
    fs::remove(fs::path(entry.path).replace_extension(kLockSuffix), error);
  }
}

PluginCache::Lock::Lock(PluginCache &cache, const std::string &key) {
  if (!cache.makeFolder()) return;
  const fs::path path = cache.folder_ / (key + kLockSuffix);
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file_ < 0) {
    cache.cannotStore(reason(errno));
    return;
  }
  const Interrupts interrupts;
  int round = 0;
  while (::flock(file_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (interrupts.raised()) {
      ::close(file_);
      throw CompileInterrupted("waiting for another process that compiles was ended by SIGINT");
    }
    waitBriefly(round);
  }
}

PluginCache::Lock::~Lock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace pulsora
