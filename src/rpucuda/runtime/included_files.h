#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pulsora {

/// The files that a compilation read, from the rule for make that a compiler writes (-MD).
std::vector<std::string> filesOfRule(const std::string &rule);

/// The folders in which a compiler looks for headers, from what it says under -v.
std::vector<std::filesystem::path> headerFolders(const std::string &output);

/// Whether the file is in the folder or below it, by its name or with all links followed.
bool isBelow(const std::filesystem::path &file, const std::filesystem::path &folder);

}  // namespace pulsora
