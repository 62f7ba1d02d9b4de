#pragma once

namespace pulsora {

/// Notes SIGINT while an object of this class lives, so that a wait in it can be ended.
///
/// The handler that the process had before is called as well. Objects may be nested, and may live
/// in several threads: all of them see a signal that arrived since the first was made. A SIGINT
/// that the process ignores stays ignored. A signal that would have ended the process, and that
/// nobody asked for by raised(), is sent again when the last object goes.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts &) = delete;
  Interrupts &operator=(const Interrupts &) = delete;

  /// Whether SIGINT has arrived.
  bool raised() const;
};

/// Waits 1 to 20 ms, the longer the more often it was called before; `round` counts the calls.
void waitBriefly(int &round);

}  // namespace pulsora
