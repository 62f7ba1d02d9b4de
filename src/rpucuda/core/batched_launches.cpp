#include "core/batched_launches.h"

#include <cstring>
#include <utility>

namespace pulsora {
namespace {

/// Sets a variable during its own lifetime, then restores the previous value.
template <class T>
struct Meanwhile {
  Meanwhile(T &variable_, T value) : variable(variable_), before(std::exchange(variable_, value)) {}
  ~Meanwhile() { variable = before; }
  Meanwhile(const Meanwhile &) = delete;
  Meanwhile &operator=(const Meanwhile &) = delete;

  T &variable;
  T before;
};

}  // namespace

BatchedLaunches *&BatchedLaunches::current() {
  static thread_local BatchedLaunches *here = nullptr;
  return here;
}

void BatchedLaunches::sendKept() {
  if (BatchedLaunches *here = current()) here->send();
}

void BatchedLaunches::run(size_t count, const std::function<void(size_t)> &work) {
  if (ofObject_.size() < count) ofObject_.resize(count);
  count_ = count;
  try {
    const Meanwhile<BatchedLaunches *> keeps(current(), this);
    for (object_ = 0; object_ < count; ++object_) work(object_);
  } catch (...) {
    send();
    throw;
  }
  send();
}

void BatchedLaunches::hold(std::shared_ptr<void> used) noexcept {
  if (BatchedLaunches *here = current()) here->held_.push_back(std::move(used));
}

size_t BatchedLaunches::stored(const void *from, size_t bytes) {
  const size_t place = stored_.size();
  stored_.resize(place + (bytes + sizeof(Unit) - 1) / sizeof(Unit));
  std::memcpy(&stored_[place], from, bytes);
  return place;
}

void BatchedLaunches::keepAsIs(std::function<void()> work) {
  keep({nullptr, 0, asIs_.size(), 0});
  asIs_.push_back(std::move(work));
}

bool BatchedLaunches::areAlike(const Kept &a, const Kept &b) const {
  return a.send && a.send == b.send && a.kindBytes == b.kindBytes &&
         std::memcmp(&stored_[a.kind], &stored_[b.kind], a.kindBytes) == 0;
}

void BatchedLaunches::send() {
  const Meanwhile<BatchedLaunches *> enqueues(current(), nullptr);
  size_t left = 0;
  for (const std::vector<Kept> &each : ofObject_) left += each.size();
  std::vector<size_t> sent(ofObject_.size());
  try {
    while (left > 0) left -= sendNext(sent);
  } catch (...) {
    clear();
    throw;
  }
  clear();
}

// The object with most work left goes first. Thus an object with an extra launch falls back into
// step with the others after that launch.
size_t BatchedLaunches::sendNext(std::vector<size_t> &sent) {
  const auto leftOf = [&](size_t i) { return ofObject_[i].size() - sent[i]; };
  size_t first = 0;
  for (size_t i = 1; i < sent.size(); ++i) {
    if (leftOf(i) > leftOf(first)) first = i;
  }
  const Kept next = ofObject_[first][sent[first]];
  if (!next.send) {
    ++sent[first];
    asIs_[next.job]();
    return 1;
  }
  jobs_.clear();
  for (size_t i = 0; i < sent.size(); ++i) {
    if (leftOf(i) == 0 || !areAlike(next, ofObject_[i][sent[i]])) continue;
    jobs_.push_back(&stored_[ofObject_[i][sent[i]].job]);
    ++sent[i];
  }
  next.send(&stored_[next.kind], jobs_.data(), static_cast<int>(jobs_.size()));
  return jobs_.size();
}

void BatchedLaunches::clear() {
  for (std::vector<Kept> &each : ofObject_) each.clear();
  stored_.clear();
  asIs_.clear();
  held_.clear();
}

}  // namespace pulsora
