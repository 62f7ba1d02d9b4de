#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pulsora {

/// Compiled device models in a folder, for the processes of one user on any number of machines.
///
/// A file is <key>.plugin: a line that names the format, the key, the SHA-256 of the rest, and the
/// rest. It is written to a draft and renamed when it is on the disk. A file that is damaged, of
/// another owner or writable by others is not used: it is removed, with a warning. If the folder
/// cannot be written to, nothing is stored, with one warning.
class PluginCache {
 public:
  using Warn = std::function<void(const std::string &)>;
  /// Bytes that the files take together, from where on those used longest ago are removed.
  static constexpr uint64_t kLimit = uint64_t{256} << 20;

  /// A cache in `folder`, which is made (mode 0700) when something is to be stored. An empty path:
  /// nothing is stored. ConfigError if the folder is there and belongs to another user or may be
  /// written to by others: what lies in it would be run.
  PluginCache(std::filesystem::path folder, Warn warn, uint64_t limit = kLimit);

  /// $PULSORA_CACHE_DIR, else $XDG_CACHE_HOME/pulsora, else ~/.cache/pulsora; empty if the
  /// environment names none of them.
  static std::filesystem::path defaultFolder();

  const std::filesystem::path &folder() const { return folder_; }
  /// What was stored under `key`, if it is there and whole. It counts as used now.
  std::optional<std::string> read(const std::string &key);
  /// What was stored last under a key that begins with `start`. For who cannot make it anew: files
  /// that may not be used are left where they are.
  std::optional<std::string> readAny(const std::string &start);
  /// Stores `body` under `key`; a warning if that cannot be done.
  void write(const std::string &key, std::string_view body);
  /// Removes what is stored under `key`, with a warning that says why.
  void drop(const std::string &key, const std::string &why);

  /// Held by one process at a time for each key. Where files cannot be locked, it locks nothing.
  class Lock {
   public:
    Lock(PluginCache &cache, const std::string &key);
    ~Lock();
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

   private:
    int file_ = -1;
  };

 private:
  std::filesystem::path fileOf(const std::string &key) const;
  /// What is stored under `key`, or nothing, and then why it may not be used if it is there.
  std::optional<std::string> usable(const std::string &key, std::string &why) const;
  bool makeFolder();
  void cannotStore(const std::string &why);
  void removeOldest(const std::filesystem::path &newest);

  std::filesystem::path folder_;
  Warn warn_;
  uint64_t limit_;
  bool stores_;
};

}  // namespace pulsora
