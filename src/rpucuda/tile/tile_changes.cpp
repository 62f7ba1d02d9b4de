#include <cstring>
#include <vector>

#include "storage/checksum.h"
#include "tile/tile_impl.h"

// The parts of a tile that updates change, packed for another process: tensors, then the numbers of
// the state in 8 bytes each. The first number is a checksum of the layout.

namespace pulsora {
namespace {

constexpr const char *kNonfinite = "nonfinite";
constexpr int64_t kFloatsOfNumber = sizeof(uint64_t) / sizeof(float);

uint64_t bitsOf(const Value &value) {
  uint64_t bits = 0;
  if (const int64_t *whole = value.integer()) std::memcpy(&bits, whole, sizeof bits);
  if (const double *real = value.real()) std::memcpy(&bits, real, sizeof bits);
  return bits;
}

Value valueLike(const Value &like, uint64_t bits) {
  int64_t whole = 0;
  double real = 0.0;
  std::memcpy(&whole, &bits, sizeof bits);
  std::memcpy(&real, &bits, sizeof bits);
  return like.integer() ? Value(whole) : Value(real);
}

/// Calls use(number) for a value that is a number, or for each of a list of numbers.
template <class AnyValue, class Use>
void forEachNumber(AnyValue &value, const Use &use) {
  if (auto *list = value.list()) {
    for (auto &each : *list) use(each);
  } else {
    use(value);
  }
}

/// The tensors and numbers that a tile packs, in the order of their places.
struct Changes {
  PackedTensors tensors;
  State state;
  std::vector<uint64_t> numbers;

  Changes(const Context &context, const AnalogDevice &device, const AgeCompensation &compensation,
          const Counters &counters, const TileKeys &keys, float *memory)
      : tensors(memory) {
    state.packed = &tensors;
    device.saveTo(context, state, "");
    compensation.saveTo(context, state);
    numbers.push_back(0);
    for (const NamedCounter &each : kCounters) numbers.push_back(counters.*each.member);
    Crc64 kind;
    const auto add = [&](uint64_t number) { kind.add(&number, sizeof number); };
    add(keys.seed);
    add(keys.tileId);
    add(static_cast<uint64_t>(device.dSize()));
    add(static_cast<uint64_t>(device.xSize()));
    add(static_cast<uint64_t>(tensors.size()));
    for (const auto &[name, value] : state.values) {
      kind.add(name.data(), name.size());
      if (value.list()) add(value.list()->size());
      forEachNumber(value, [&](const Value &number) { numbers.push_back(bitsOf(number)); });
    }
    numbers.front() = kind.value();
  }
  Changes(const Changes &) = delete;
  Changes &operator=(const Changes &) = delete;

  int64_t size() const {
    return tensors.size() + kFloatsOfNumber * static_cast<int64_t>(numbers.size());
  }
  size_t bytesOfNumbers() const { return numbers.size() * sizeof(uint64_t); }
};

}  // namespace

struct Tile::Impl::Changed : Changes {
  Changed(const Impl &t, float *memory)
      : Changes(t.context, *t.device, *t.compensation, t.counters, t.keys, memory) {
    // So that the other tile tells of values that are not finite too.
    if (!t.nonfiniteFlag.empty()) state.packs(t.context, kNonfinite, t.nonfiniteFlag);
  }

  void load(Impl &t) const {
    t.loadFrom(state);
    if (!t.nonfiniteFlag.empty()) state.unpacks(t.context, kNonfinite, t.nonfiniteFlag);
  }

  /// Restores the numbers of another tile, and the tensors that readFrom() has set.
  void restore(Impl &t, const uint64_t *from) {
    PULSORA_CHECK(StateError, *from == numbers.front(),
                  "the changes belong to a tile of other sizes, other arrays or another seed; "
                  "exchange them between copies of one tile");
    ++from;
    Counters theirs;
    for (const NamedCounter &each : kCounters) theirs.*each.member = *from++;
    for (auto &[name, value] : state.values)
      forEachNumber(value, [&](Value &number) { number = valueLike(number, *from++); });
    load(t);
    t.counters = theirs;
  }
};

void Tile::computeCells() { impl_->device->computeCells(impl_->context); }

void Tile::releaseWeights() {
  Impl::Changed mine(*impl_, nullptr);
  mine.tensors.freeBuffers();
  mine.load(*impl_);  // with its own numbers
  impl_->device->dropSums();
  impl_->isReleased = true;
}

int64_t Tile::changesSize(ChangedParts parts) const {
  const Impl::Changed changes(*impl_, nullptr);
  return parts == ChangedParts::All ? changes.size() : changes.tensors.size();
}

float *Tile::packChanges(float *to, ChangedParts parts) const {
  impl_->requireWeights();
  const Impl::Changed changes(*impl_, to);
  if (parts == ChangedParts::Tensors) return to + changes.tensors.size();
  detail::copyFromHost(impl_->context, to + changes.tensors.size(), changes.numbers.data(),
                       changes.bytesOfNumbers());
  return to + changes.size();
}

const float *Tile::unpackChanges(const float *from, ChangedParts parts) {
  Impl::Changed mine(*impl_, nullptr);
  mine.tensors.readFrom(from);
  if (parts == ChangedParts::Tensors) {
    mine.load(*impl_);  // with its own numbers
    impl_->isReleased = false;
    return from + mine.tensors.size();
  }
  std::vector<uint64_t> numbers(mine.numbers.size());
  detail::copyToHost(impl_->context, numbers.data(), from + mine.tensors.size(),
                     mine.bytesOfNumbers());
  mine.restore(*impl_, numbers.data());
  impl_->isReleased = false;
  return from + mine.size();
}

std::vector<uint64_t> Tile::changedNumbers() const {
  return Impl::Changed(*impl_, nullptr).numbers;
}

size_t Tile::restoreNumbers(const uint64_t *from, size_t count) {
  Impl::Changed mine(*impl_, nullptr);
  PULSORA_CHECK(InputError, count >= mine.numbers.size(), "there are ", count,
                " numbers of changes where a tile has ", mine.numbers.size(),
                "; give all of changedNumbers()");
  mine.restore(*impl_, from);
  return mine.numbers.size();
}

}  // namespace pulsora
