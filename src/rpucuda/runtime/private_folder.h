#pragma once

#include <filesystem>

namespace pulsora {

/// A folder for this process alone, removed with its contents: pulsora-compile-XXXXXX (mode 0700)
/// in $TMPDIR or /tmp.
class PrivateFolder {
 public:
  /// std::filesystem::filesystem_error if it cannot be made.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder &) = delete;
  PrivateFolder &operator=(const PrivateFolder &) = delete;
  const std::filesystem::path &path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Removes private folders of this user that processes left behind when they were killed: folders
/// of $TMPDIR or /tmp that are older than a day. No compilation takes that long (CompileLimits).
void removeAbandonedFolders();

}  // namespace pulsora
