#include "runtime/private_folder.h"

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace pulsora {
namespace {

namespace fs = std::filesystem;

constexpr const char *kPrefix = "pulsora-compile-";
constexpr time_t kDay = 24 * 60 * 60;

fs::path baseFolder() {
  const char *base = std::getenv("TMPDIR");
  return base && *base ? base : "/tmp";
}

}  // namespace

PrivateFolder::PrivateFolder() {
  std::string name = (baseFolder() / (std::string(kPrefix) + "XXXXXX")).string();
  if (!::mkdtemp(name.data()))
    throw fs::filesystem_error("no folder can be made here; set TMPDIR", name,
                               std::error_code(errno, std::generic_category()));
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void removeAbandonedFolders() {
  const time_t oldest = std::time(nullptr) - kDay;
  std::vector<fs::path> abandoned;
  std::error_code error;
  for (fs::directory_iterator each(baseFolder(), error), end; !error && each != end;
       each.increment(error)) {
    if (each->path().filename().string().rfind(kPrefix, 0) != 0) continue;
    struct stat status{};
    if (::lstat(each->path().c_str(), &status) != 0) continue;  // just removed by its owner
    if (S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && status.st_mtime < oldest)
      abandoned.push_back(each->path());
  }
  for (const fs::path &folder : abandoned) fs::remove_all(folder, error);
}

}  // namespace pulsora
