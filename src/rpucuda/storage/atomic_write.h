#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pulsora {

/// Replaces the content of the file at `path` by `parts`, concatenated. Readers of the path see the
/// complete old or the complete new content, even if this process is killed, the machine fails, or
/// other processes write the file meanwhile.
///
/// The new content is written to a draft, a file of another name in the same folder, which takes
/// the path's place when it is on the disk. If the path is a symbolic link, the file behind it is
/// replaced. An existing file keeps its mode and, where permitted, its owner; a new file gets
/// `mode`, less the process's umask. Drafts that killed processes left in that folder are removed.
///
/// Throws std::filesystem::filesystem_error, a std::system_error, if the file cannot be written; an
/// existing file is then unchanged.
void replaceFile(const std::string &path, const std::vector<std::string_view> &parts,
                 unsigned mode = 0666);

}  // namespace pulsora
