// Calls that write files, which can be told to fail or to end the process, for a process that is
// started with this library in LD_PRELOAD. Only calls of the thread that arms it count.

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

constexpr int kStatus = 9;  // of a process that is ended

thread_local bool armed = false;
thread_local long counted = 0;
thread_local long failing = -1;  // the number of the call that fails; none if negative
thread_local int failure = 0;    // its errno; 0 ends the process instead
thread_local bool lasting = false;

// Whether this call fails; ends the process if it is told to.
bool fails() {
  if (!armed) return false;
  const long number = counted++;
  if (failing < 0 || (number != failing && !(lasting && number > failing))) return false;
  if (failure == 0) _exit(kStatus);
  errno = failure;
  return true;
}

template <class Function>
Function next(Function, const char *name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

#define PULSORA_NEXT(name) next(&::name, #name)

// A write that fails has written half of its bytes before; the rest fails.
ssize_t cutShort(int file, const void *bytes, size_t count) {
  const bool isNext = armed && failing >= 0 && counted == failing && count > 1;
  if (!isNext) return fails() ? -1 : PULSORA_NEXT(write)(file, bytes, count);
  const ssize_t written = PULSORA_NEXT(write)(file, bytes, count / 2);
  if (failure == 0) _exit(kStatus);
  ++counted;
  failing = counted;  // the rest of these bytes
  return written;
}

}  // namespace

// Starts to count; the call of this number fails with this errno, and with `last` all that follow.
extern "C" void pulsoraFailFileAt(long number, int error, int last) {
  armed = true;
  counted = 0;
  failing = number;
  failure = error;
  lasting = last != 0;
}

// Ends it; how many calls there were.
extern "C" long pulsoraDisarmFiles() {
  armed = false;
  return counted;
}

extern "C" {

ssize_t write(int file, const void *bytes, size_t count) { return cutShort(file, bytes, count); }

int fsync(int file) { return fails() ? -1 : PULSORA_NEXT(fsync)(file); }
int fdatasync(int file) { return fails() ? -1 : PULSORA_NEXT(fdatasync)(file); }

int rename(const char *from, const char *to) noexcept {
  return fails() ? -1 : PULSORA_NEXT(rename)(from, to);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  return writes && fails() ? -1 : PULSORA_NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  return writes && fails() ? -1 : PULSORA_NEXT(open64)(path, flags, mode);
}

}  // extern "C"
