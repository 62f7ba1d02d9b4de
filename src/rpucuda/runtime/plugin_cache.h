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
/// A file is <key>.plugin: a line with the format, the key and the SHA-256 of the body, then the
/// body. It is written to a draft and renamed once on the disk. A file that is damaged, of another
/// owner or writable by others is removed, with a warning. If the folder cannot be written to,
/// nothing is stored, with one warning.
class PluginCache {
 public:
  using Warn = std::function<void(const std::string &)>;
  /// Largest total size of the files in bytes; beyond it, files used longest ago are removed.
  static constexpr uint64_t kLimit = uint64_t{256} << 20;

  /// A cache in `folder`, which is made (mode 0700) when something is first stored. With an empty
  /// path nothing is stored. ConfigError if the folder belongs to another user or is writable by
  /// others, because files in it are run.
  PluginCache(std::filesystem::path folder, Warn warn, uint64_t limit = kLimit);

  /// $PULSORA_CACHE_DIR, else $XDG_CACHE_HOME/pulsora, else ~/.cache/pulsora; empty if the
  /// environment has none of these.
  static std::filesystem::path defaultFolder();

  const std::filesystem::path &folder() const { return folder_; }
  /// The body stored under `key`, if it exists undamaged; marks the file as used now.
  std::optional<std::string> read(const std::string &key);
  /// The body stored last under a key that begins with `start`. For callers that cannot compile
  /// again: unusable files are not removed.
  std::optional<std::string> readAny(const std::string &start);
  /// Stores `body` under `key`; warns if it cannot be stored.
  void write(const std::string &key, std::string_view body);
  /// Removes the file stored under `key`, with a warning that says why.
  void drop(const std::string &key, const std::string &why);

  /// A lock for each key, held by one process at a time. Without effect where files cannot be
  /// locked. CompileInterrupted if SIGINT arrives while another process holds it.
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
  /// The body stored under `key`, or nothing; then `why` tells why an existing file is unusable.
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
