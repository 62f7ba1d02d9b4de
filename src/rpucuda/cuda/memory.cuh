#pragma once

namespace RPU {

/// Gives back what was released while `stream` was being captured. Such memory may still be named
/// by the graph, so it must wait until that has been launched.
void releaseCaptured(void *stream) noexcept;

}  // namespace RPU
