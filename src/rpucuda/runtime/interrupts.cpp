#include "runtime/interrupts.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace pulsora {
namespace {

std::atomic<uint32_t> arrived{0};  // signals since the handler was first set
std::atomic<uint32_t> seen{0};     // `arrived` when the first of the living objects was made
std::atomic<bool> told{false};     // whether raised() was true for one of them

std::mutex watching;
int watchers = 0;
bool installed = false;
struct sigaction before{};

extern "C" void noteInterrupt(int signal, siginfo_t *info, void *context) {
  arrived.fetch_add(1);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

bool isOurs(const struct sigaction &action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &noteInterrupt;
}

bool isDefault(const struct sigaction &action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

void install() {
  struct sigaction now{};
  if (::sigaction(SIGINT, nullptr, &now) != 0) return;
  const bool ignored = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
  if (ignored) return;
  before = now;
  struct sigaction ours = now;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_flags &= ~static_cast<int>(SA_RESETHAND);
  ours.sa_sigaction = &noteInterrupt;
  installed = ::sigaction(SIGINT, &ours, nullptr) == 0;
}

}  // namespace

Interrupts::Interrupts() {
  const std::lock_guard<std::mutex> lock(watching);
  if (watchers++ > 0) return;
  seen = arrived.load();
  told = false;
  install();
}

Interrupts::~Interrupts() {
  const std::lock_guard<std::mutex> lock(watching);
  if (--watchers > 0 || !installed) return;
  installed = false;
  struct sigaction now{};
  // Somebody may have set another handler meanwhile, which stays.
  if (::sigaction(SIGINT, nullptr, &now) == 0 && isOurs(now)) ::sigaction(SIGINT, &before, nullptr);
  if (arrived != seen && !told && isDefault(before)) static_cast<void>(::raise(SIGINT));
}

bool Interrupts::raised() const {
  if (arrived == seen) return false;
  told = true;
  return true;
}

void waitBriefly(int &round) {
  constexpr int kMost = 20;
  round = std::min(round + 1, kMost);
  const timespec pause{0, round * 1000000L};
  ::nanosleep(&pause, nullptr);  // a signal ends it early
}

}  // namespace pulsora
