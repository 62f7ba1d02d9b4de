#include "core/scratch.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "core/batched_launches.h"
#include "core/cuda_api.h"

namespace pulsora {
namespace {

constexpr int64_t kDefaultLimit = int64_t{256} << 20;
constexpr const char *kLimitVariable = "PULSORA_SCRATCH_LIMIT";
constexpr size_t kAlignment = 256;  // of pieces from the begin of their slab

struct Limit {
  std::atomic<int64_t> bytes{0};  // 0: not asked for yet
  std::atomic<bool> isSet{false};

  int64_t get() {
    const int64_t known = bytes;
    if (known > 0) return known;
    const char *text = std::getenv(kLimitVariable);
    if (!text || !*text) return bytes = kDefaultLimit;
    char *end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text, &end, 10);
    PULSORA_CHECK(ConfigError, errno == 0 && *end == '\0' && value > 0, kLimitVariable, " is '",
                  text, "'; give a number of bytes, such as ", kDefaultLimit);
    isSet = true;
    return bytes = value;
  }
};
Limit limit;

struct Account {
  std::atomic<int64_t> inUse{0}, held{0}, peak{0};

  void use(int64_t bytes) {
    const int64_t now = inUse += bytes;
    int64_t most = peak;
    while (now > most && !peak.compare_exchange_weak(most, now)) {
    }
  }
};

// Of the CPU, then of GPUs; those beyond the last share it.
Account &accountOf(Backend backend, int device) {
  constexpr int kMost = 65;
  static Account accounts[kMost];
  return accounts[backend == Backend::Cpu ? 0 : 1 + std::min(std::max(device, 0), kMost - 2)];
}

uint64_t newNumber() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

class OwnSource final : public ScratchSource {
 public:
  void *allocate(const Context &context, size_t bytes) override {
    return detail::allocateBytes(context, static_cast<int64_t>(bytes), 1);
  }
  void release(Backend backend, int device, void *stream, void *data) noexcept override {
    detail::freeBytes(backend, device, stream, data);
  }
};

std::atomic<ScratchSource *> currentSource{nullptr};

ScratchSource &sourceNow() {
  ScratchSource *source = currentSource;
  return source ? *source : ScratchSource::own();
}

/// The pools of GPUs' streams.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<int, void *>, std::weak_ptr<ScratchPool>> pools;

  static Registry &get() {
    static auto &all = *new Registry;  // outlives the driver
    return all;
  }
};

}  // namespace

int64_t scratchLimit() { return limit.get(); }

void setScratchLimit(int64_t bytes) {
  PULSORA_CHECK(ConfigError, bytes > 0, "the limit of scratch memory is ", bytes,
                "; it must be a positive number of bytes, such as ", kDefaultLimit);
  limit.bytes = bytes;
  limit.isSet = true;
}

bool scratchLimitIsSet() { return limit.isSet; }

ScratchMemory scratchMemory(Backend backend, int device) {
  const Account &account = accountOf(backend, device);
  return {account.inUse, account.held, account.peak};
}

void resetScratchPeak(Backend backend, int device) {
  Account &account = accountOf(backend, device);
  account.peak = account.inUse.load();
}

ScratchSource &ScratchSource::own() {
  static auto &source = *new OwnSource;
  return source;
}

ScratchSource &ScratchSource::exchange(ScratchSource &source) {
  ScratchSource *before = currentSource.exchange(&source);
  return before ? *before : own();
}

/// Memory of one operation at a time: slabs, from which pieces are taken one after another. Slabs
/// that an operation had to add become one for the next.
class ScratchArena {
 public:
  ~ScratchArena() { release(); }

  void *take(const Context &context, size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    Slab *slab = nullptr;
    for (Slab &each : slabs_)
      if (each.size - each.used >= size) slab = &each;
    if (!slab) slab = &add(context, size);
    void *piece = slab->data + slab->used;
    slab->used += size;
    used_ += size;
    accountOf(backend_, device_).use(static_cast<int64_t>(size));
    return piece;
  }
  void lendTo(detail::ScratchPiece &piece, void *data, size_t bytes) {
    if (piece.lender_ != this) {
      borrowers_.push_back(&piece);
      piece.leave();
      piece.lender_ = this;
      piece.place_ = borrowers_.size() - 1;
    }
    piece.data_ = data;
    piece.bytes_ = bytes;
  }
  size_t used() const { return used_; }
  void moved(size_t place, detail::ScratchPiece *to) { borrowers_[place] = to; }

  void takeBack() {
    for (detail::ScratchPiece *piece : borrowers_) {
      if (!piece) continue;
      piece->lender_ = nullptr;
      piece->useKept();
    }
    borrowers_.clear();
    accountOf(backend_, device_).inUse -= static_cast<int64_t>(used_);
    size_t all = 0;
    for (const Slab &each : slabs_) all += each.size;
    const int64_t most = limit.bytes;  // 0 if nobody has asked for it
    const bool isLarge = all > static_cast<size_t>(most > 0 ? most : kDefaultLimit);
    if (isLarge || slabs_.size() > 1) {
      wanted_ = isLarge ? 0 : used_;
      release();
    } else {
      for (Slab &each : slabs_) each.used = 0;
    }
    used_ = 0;
  }

 private:
  struct Slab {
    std::byte *data;
    size_t size;
    size_t used;
    ScratchSource *source;
  };

  Slab &add(const Context &context, size_t size) {
    backend_ = context.backend;
    device_ = context.device;
    stream_ = context.stream;
    slabs_.reserve(slabs_.size() + 1);
    Context plain = context;
    plain.allocator = nullptr;
    ScratchSource &source = sourceNow();
    const auto make = [&](size_t bytes) {
      void *data = source.allocate(plain, bytes);
      slabs_.push_back({static_cast<std::byte *>(data), bytes, 0, &source});
      accountOf(backend_, device_).held += static_cast<int64_t>(bytes);
    };
    if (slabs_.empty() && wanted_ > size) {
      try {
        make(wanted_);
        return slabs_.back();
      } catch (const OutOfMemoryError &) {
        wanted_ = 0;
      }
    }
    make(size);
    return slabs_.back();
  }
  void release() noexcept {
    for (const Slab &each : slabs_) {
      each.source->release(backend_, device_, stream_, each.data);
      accountOf(backend_, device_).held -= static_cast<int64_t>(each.size);
    }
    slabs_.clear();
  }

  Backend backend_ = Backend::Cpu;
  int device_ = 0;
  void *stream_ = nullptr;
  std::vector<Slab> slabs_;
  std::vector<detail::ScratchPiece *> borrowers_;  // null for those that have gone
  size_t used_ = 0;
  size_t wanted_ = 0;  // size of the next first slab, at least
};

struct ScratchPool::Lists {
  std::mutex mutex;
  std::vector<std::unique_ptr<ScratchArena>> idle;     // the latest last
  std::vector<std::unique_ptr<ScratchArena>> forGood;  // of graphs
  bool graphsRunOnce = false;
};

ScratchPool::ScratchPool() : lists_(std::make_unique<Lists>()) {}
ScratchPool::~ScratchPool() = default;

std::shared_ptr<ScratchPool> ScratchPool::of(const Context &context) {
  if (context.onCpu()) {
    thread_local const auto ofThread = std::make_shared<ScratchPool>();
    return ofThread;
  }
  const CudaScope scope(context.device);  // throws in a forked process, where the mutex may be lost
  Registry &registry = Registry::get();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  std::weak_ptr<ScratchPool> &known = registry.pools[{context.device, context.stream}];
  std::shared_ptr<ScratchPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<ScratchPool>();
  return pool;
}

std::shared_ptr<ScratchPool> ScratchPool::exchange(int device, void *stream,
                                                   const std::shared_ptr<ScratchPool> &pool) {
  Registry &registry = Registry::get();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  std::weak_ptr<ScratchPool> &known = registry.pools[{device, stream}];
  std::shared_ptr<ScratchPool> before = known.lock();
  known = pool;
  return before;
}

void ScratchPool::setGraphsRunOnce(bool runOnce) {
  const std::lock_guard<std::mutex> guard(lists_->mutex);
  lists_->graphsRunOnce = runOnce;
}

std::unique_ptr<ScratchArena> ScratchPool::take() {
  const std::lock_guard<std::mutex> guard(lists_->mutex);
  if (lists_->idle.empty()) return std::make_unique<ScratchArena>();
  std::unique_ptr<ScratchArena> arena = std::move(lists_->idle.back());
  lists_->idle.pop_back();
  return arena;
}

void ScratchPool::give(std::unique_ptr<ScratchArena> arena, bool captured) noexcept {
  const std::lock_guard<std::mutex> guard(lists_->mutex);
  auto &list = captured && !lists_->graphsRunOnce ? lists_->forGood : lists_->idle;
  list.push_back(std::move(arena));
}

/// An arena on loan. Its end is that of the operation, or later that of launches that are kept.
struct ScratchOperation::Lease {
  Lease(const Context &context, std::shared_ptr<ScratchPool> from)
      : pool(std::move(from)), arena(pool->take()), stream(context.stream) {}
  ~Lease() {
    arena->takeBack();
    pool->give(std::move(arena), isCaptured(stream));
  }
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;

  std::shared_ptr<ScratchPool> pool;
  std::unique_ptr<ScratchArena> arena;
  void *stream;
  size_t most = SIZE_MAX;
  size_t beyond = 0;  // bytes that do not count
  uint64_t number = newNumber();
};

ScratchOperation::ScratchOperation(Context &context) : context_(context) {
  if (context.scratch) return;
  lease_ = std::make_shared<Lease>(context, ScratchPool::of(context));
  context.scratch = this;
}

ScratchOperation::~ScratchOperation() {
  if (!lease_) return;
  context_.scratch = nullptr;
  BatchedLaunches::hold(std::move(lease_));
}

void ScratchOperation::setLimited(bool limited) {
  lease_->most =
      limited ? static_cast<size_t>(scratchLimit()) / BatchedLaunches::together() : SIZE_MAX;
}

void ScratchOperation::takeBack() {
  lease_->arena->takeBack();
  lease_->beyond = 0;
  lease_->number = newNumber();
}

uint64_t ScratchOperation::number() const { return lease_->number; }

namespace detail {

void ScratchPiece::reserve(const Context &context, int64_t count, size_t elementBytes,
                           bool counts) {
  ScratchArena *arena = context.scratch ? context.scratch->lease_->arena.get() : nullptr;
  // What launches that are kept hold from an earlier operation is not of this one.
  const bool isOurs = !lender_ || lender_ == arena;
  if (isOurs && count <= static_cast<int64_t>(bytes_ / elementBytes)) return;
  PULSORA_CHECK(OutOfMemoryError, static_cast<uint64_t>(count) <= PTRDIFF_MAX / elementBytes / 2,
                "cannot allocate ", count, " elements of ", elementBytes,
                " bytes; use a smaller array or batch");
  const size_t bytes = static_cast<size_t>(count) * elementBytes;
  if (!arena) {
    leave();
    kept_.reserve(context, static_cast<int64_t>(bytes));
    useKept();
    return;
  }
  ScratchOperation::Lease &lease = *context.scratch->lease_;
  const size_t usedBefore = arena->used();
  const size_t wanted = usedBefore - lease.beyond + bytes;
  PULSORA_CHECK(ScratchLimitReached, !counts || wanted <= lease.most, "an operation takes ", wanted,
                " bytes of scratch memory or more, and the limit is ", lease.most,
                " bytes; raise it (pulsora.scratch_limit or ", kLimitVariable,
                "), or use smaller tiles");
  arena->lendTo(*this, arena->take(context, bytes), bytes);
  if (!counts) lease.beyond += arena->used() - usedBefore;
}

void ScratchPiece::swap(ScratchPiece &other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kept_, other.kept_);
  std::swap(lender_, other.lender_);
  std::swap(place_, other.place_);
  if (lender_) lender_->moved(place_, this);
  if (other.lender_) other.lender_->moved(other.place_, &other);
}

void ScratchPiece::leave() noexcept {
  if (lender_) lender_->moved(place_, nullptr);
  lender_ = nullptr;
}

void ScratchPiece::useKept() {
  data_ = kept_.data();
  bytes_ = kept_.bytes();
}

}  // namespace detail
}  // namespace pulsora
