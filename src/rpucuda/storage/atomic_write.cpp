#include "storage/atomic_write.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace pulsora {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(int error, const char *what, const fs::path &path) {
  throw fs::filesystem_error(what, path, std::error_code(error, std::generic_category()));
}

/// Repeats a call as long as signals interrupt it.
template <class Call>
auto uninterrupted(const Call &call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// A new file beside the target, which is removed unless it takes the target's place.
class Draft {
 public:
  Draft(const fs::path &folder, mode_t mode) {
    std::random_device random;
    do {
      path_ = folder / (".pulsora-" + std::to_string(random()) + ".part");
      file_ = uninterrupted([&] {
        return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
      });
    } while (file_ < 0 && errno == EEXIST);
    if (file_ < 0) fail(errno, "cannot write to this folder", folder);
  }
  ~Draft() {
    ::close(file_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Draft(const Draft &) = delete;
  Draft &operator=(const Draft &) = delete;

  void write(std::string_view bytes, const fs::path &target) const {
    while (!bytes.empty()) {
      const ssize_t written =
          uninterrupted([&] { return ::write(file_, bytes.data(), bytes.size()); });
      if (written < 0) fail(errno, "cannot be written", target);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  /// Takes the owner and the mode of the replaced file, as far as this process may.
  void takeOwnerAndMode(const struct stat &status) const {
    if (::fchown(file_, status.st_uid, status.st_gid) != 0) errno = 0;
    if (::fchmod(file_, status.st_mode & 07777) != 0) errno = 0;
  }
  void publish(const fs::path &target) {
    if (uninterrupted([&] { return ::fsync(file_); }) != 0)
      fail(errno, "cannot be written", target);
    if (::rename(path_.c_str(), target.c_str()) != 0) fail(errno, "cannot be replaced", target);
    path_.clear();
  }

 private:
  fs::path path_;  // empty once it is published
  int file_ = -1;
};

/// The status of an existing file, which may be replaced; false if there is none.
bool isThere(const fs::path &target, struct stat &status) {
  if (::stat(target.c_str(), &status) != 0) {
    if (errno != ENOENT) fail(errno, "cannot be written", target);
    return false;
  }
  if (!S_ISREG(status.st_mode))
    fail(S_ISDIR(status.st_mode) ? EISDIR : EINVAL, "is no regular file", target);
  if (::access(target.c_str(), W_OK) != 0) fail(errno, "cannot be written", target);
  return true;
}

/// The file behind symbolic links, of which Linux follows 40.
fs::path behindLinks(fs::path path) {
  for (int links = 0; fs::is_symlink(fs::symlink_status(path)); ++links) {
    if (links == 40) fail(ELOOP, "cannot be followed", path);
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

}  // namespace

void replaceFile(const std::string &path, const std::vector<std::string_view> &parts,
                 unsigned mode) {
  if (path.find('\0') != path.npos) fail(EINVAL, "a path holds no zero byte", path.c_str());
  const fs::path target = behindLinks(path);
  struct stat old{};
  const bool replaces = isThere(target, old);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  Draft draft(folder, replaces ? 0600 : static_cast<mode_t>(mode));
  for (const std::string_view part : parts) draft.write(part, target);
  if (replaces) draft.takeOwnerAndMode(old);
  draft.publish(target);
  // Puts the new name on the disk as well; not every file system can.
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

}  // namespace pulsora
