#include "runtime/included_files.h"

#include <algorithm>
#include <sstream>
#include <system_error>

namespace pulsora {
namespace {

namespace fs = std::filesystem;

bool startsWith(const fs::path &path, const fs::path &start) {
  return std::mismatch(start.begin(), start.end(), path.begin(), path.end()).first == start.end();
}

/// The path without "." and "..", and without a slash at its end.
fs::path plain(const fs::path &path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// The path with all links followed; as it is if it cannot be followed.
fs::path followed(const fs::path &path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real;
}

}  // namespace

std::vector<std::string> filesOfRule(const std::string &rule) {
  // "target: file file \<newline> file"; spaces, backslashes and # in names follow a backslash, and
  // $ is doubled.
  const size_t colon = rule.find(':');
  std::vector<std::string> files;
  std::string file;
  const auto finish = [&] {
    if (!file.empty()) files.push_back(file);
    file.clear();
  };
  for (size_t i = colon == rule.npos ? rule.size() : colon + 1; i < rule.size(); ++i) {
    const char letter = rule[i];
    const char next = i + 1 < rule.size() ? rule[i + 1] : '\0';
    if (letter == '\n' || letter == ' ' || letter == '\t') {
      finish();
    } else if (letter == '\\' && next == '\n') {
      finish();
      ++i;
    } else if ((letter == '\\' && (next == ' ' || next == '#' || next == '\\')) ||
               (letter == '$' && next == '$')) {
      file += next;
      ++i;
    } else {
      file += letter;
    }
  }
  finish();
  return files;
}

std::vector<fs::path> headerFolders(const std::string &output) {
  std::vector<fs::path> folders;
  std::istringstream lines(output);
  bool listed = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("#include <...>", 0) == 0) {
      listed = true;
    } else if (line.rfind("End of search list", 0) == 0) {
      break;
    } else if (listed && line.size() > 1 && line[0] == ' ') {
      const std::string framework = " (framework directory)";
      const size_t end = line.rfind(framework);
      folders.emplace_back(line.substr(1, end == line.npos ? end : end - 1));
    }
  }
  return folders;
}

bool isBelow(const fs::path &file, const fs::path &folder) {
  return startsWith(plain(file), plain(folder)) || startsWith(followed(file), followed(folder));
}

}  // namespace pulsora
