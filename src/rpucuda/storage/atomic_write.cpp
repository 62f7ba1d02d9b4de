#include "storage/atomic_write.h"

#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace pulsora {
namespace {

namespace fs = std::filesystem;

// A draft is named <prefix><running kernel>-<random number><suffix>. Its writer keeps it locked, so
// an unlocked draft was left behind. This holds only among processes of one kernel: file systems
// shared by machines do not always share locks, so drafts of other machines (and of this one before
// it was restarted) are left alone until they are a day old.
constexpr const char *kPrefix = ".pulsora-";
constexpr const char *kSuffix = ".part";
constexpr std::time_t kForeignAge = 24 * 60 * 60;

constexpr int kMaxLinks = 40;  // the limit of Linux

[[noreturn]] void fail(int error, const char *what, const fs::path &path) {
  throw fs::filesystem_error(what, path, std::error_code(error, std::generic_category()));
}

/// Repeats a call while signals interrupt it.
template <class Call>
auto uninterrupted(const Call &call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (valid()) ::close(number_);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  bool valid() const { return number_ >= 0; }
  int get() const { return number_; }

 private:
  int number_;
};

/// Prefix of the names of drafts of this machine's running kernel.
const std::string &ownPrefix() {
  static const std::string prefix = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return kPrefix + id.substr(0, 8) + "-";
  }();
  return prefix;
}

std::string newName() {
  constexpr const char *kDigits = "0123456789abcdef";
  std::random_device random;
  std::string number;
  for (int i = 0; i < 16; ++i) number += kDigits[random() & 0xFU];
  return ownPrefix() + number + kSuffix;
}

bool startsWith(const std::string &text, const std::string &start) {
  return text.compare(0, start.size(), start) == 0;
}
bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void removeIfLeft(const fs::path &draft) {
  const Descriptor file(::open(draft.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return;
  const bool own = startsWith(draft.filename().string(), ownPrefix());
  if (!own && status.st_mtime > std::time(nullptr) - kForeignAge) return;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(draft.c_str());
}

void removeLeftDrafts(const fs::path &folder) {
  std::error_code error;  // drafts that cannot be removed do not prevent a write
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (startsWith(name, kPrefix) && endsWith(name, kSuffix)) removeIfLeft(each->path());
  }
}

class Draft {
 public:
  Draft(const fs::path &folder, mode_t mode)
      : path_(folder / newName()), file_(uninterrupted([&] {
          return ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        })) {
    if (!file_.valid()) fail(errno, "cannot write to this folder", folder);
    // An error is no harm: where files cannot be locked, no process takes this one for left behind.
    uninterrupted([&] { return ::flock(file_.get(), LOCK_EX); });
  }
  ~Draft() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Draft(const Draft &) = delete;
  Draft &operator=(const Draft &) = delete;

  int file() const { return file_.get(); }
  /// Whether the draft was removed before it was locked.
  bool lost() const {
    struct stat status{};
    return ::fstat(file_.get(), &status) == 0 && status.st_nlink == 0;
  }
  void write(std::string_view bytes, const fs::path &target) const {
    while (!bytes.empty()) {
      const ssize_t written =
          uninterrupted([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
      if (written < 0) fail(errno, "cannot be written", target);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  void publish(const fs::path &target) {
    if (uninterrupted([&] { return ::fsync(file_.get()); }) != 0)
      fail(errno, "cannot be written", target);
    if (::rename(path_.c_str(), target.c_str()) != 0) fail(errno, "cannot be replaced", target);
    path_.clear();
  }

 private:
  fs::path path_;  // empty once published
  Descriptor file_;
};

fs::path behindLinks(fs::path path) {
  for (int links = 0; fs::is_symlink(fs::symlink_status(path)); ++links) {
    if (links == kMaxLinks) fail(ELOOP, "cannot be followed", path);
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

/// Gives the status of an existing file that may be replaced; false if there is no file.
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

/// Copies owner and mode as far as permitted. A failure exposes nothing: the draft began as a
/// private file.
void takeOwnerAndMode(int file, const struct stat &status) {
  if (::fchown(file, status.st_uid, status.st_gid) != 0) errno = 0;
  if (::fchmod(file, status.st_mode & 07777) != 0) errno = 0;
}

/// Writes the new name to the disk as well; not every file system can.
void syncFolder(const fs::path &folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.valid()) ::fsync(file.get());
}

}  // namespace

void replaceFile(const std::string &path, const std::vector<std::string_view> &parts,
                 unsigned mode) {
  if (path.find('\0') != path.npos) fail(EINVAL, "a path holds no zero byte", path.c_str());
  const fs::path target = behindLinks(path);
  struct stat old{};
  const bool replaces = isThere(target, old);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  removeLeftDrafts(folder);
  std::optional<Draft> draft;
  do {
    draft.emplace(folder, replaces ? 0600 : static_cast<mode_t>(mode));
  } while (draft->lost());
  for (const std::string_view part : parts) draft->write(part, target);
  if (replaces) takeOwnerAndMode(draft->file(), old);
  draft->publish(target);
  syncFolder(folder);
}

}  // namespace pulsora
