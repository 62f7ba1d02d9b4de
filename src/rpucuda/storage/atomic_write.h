#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pulsora {

/// Makes `parts`, one after another, the content of the file at `path`. Whoever opens that path
/// sees the old content or the whole new one, also if this process is killed or the machine fails,
/// and whoever else writes it meanwhile.
///
/// The new content is written to a draft, a file of another name in the same folder, which takes
/// the path's place when it is on the disk. Of a symbolic link, the file behind it is replaced. An
/// existing file keeps its mode, and its owner where that may be; a new one has `mode`, less what
/// the process's mask takes away. A killed process leaves its draft behind, a file named
/// `.pulsora-<number>.part`.
///
/// std::filesystem::filesystem_error, which is a std::system_error, if the file cannot be written;
/// an existing one is then as it was.
void replaceFile(const std::string &path, const std::vector<std::string_view> &parts,
                 unsigned mode = 0666);

}  // namespace pulsora
