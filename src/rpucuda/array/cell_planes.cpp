#include "array/cell_planes.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "array/cell_functors.h"
#include "array/cell_kernels.h"
#include "core/backend.h"
#include "storage/checksum.h"

namespace pulsora {
namespace {

// Tensors of a state, in the order of the parts, and the value in their place.
constexpr const char *kNames[] = {"cells", "decay_rates", "diffusions", "resets"};
constexpr const char *kDrawn = "cells_drawn";
constexpr const char *kKey = "key";
constexpr const char *kChecksum = "checksum";

std::string inDigits(uint64_t number) {
  char text[17] = {};
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// The number of 16 hexadecimal digits under `name`.
uint64_t numberIn(const Value &saved, const char *name) {
  const Value::Map *map = saved.map();
  const auto found = map ? map->find(name) : Value::Map::const_iterator{};
  const std::string *text = map && found != map->end() ? found->second.text() : nullptr;
  uint64_t number = 0;
  if (text && text->size() == 16) {
    const auto read = std::from_chars(text->data(), text->data() + 16, number, 16);
    if (read.ec == std::errc{} && read.ptr == text->data() + 16) return number;
  }
  throw StateError(message("the state's ", kDrawn, " is ", saved.describe(), ", without a ", name,
                           " of 16 hexadecimal digits; the state is damaged"));
}

uint64_t checksumOf(const Context &context, const uint16_t *planes, int64_t count) {
  Crc64 sum;
  sum.add(context, planes, static_cast<size_t>(count) * sizeof(uint16_t));
  return sum.value();
}

std::vector<uint16_t> copyOf(const Context &context, const uint16_t *planes, int64_t count) {
  std::vector<uint16_t> host(static_cast<size_t>(count));
  detail::copyToHost(context, host.data(), planes, host.size() * sizeof(uint16_t));
  return host;
}

std::string inPlaceOf(const std::string &name, const char *other) {
  return name.substr(0, name.rfind('/') + 1) + other;
}

}  // namespace

CellPlanes::CellPlanes(const Context &context, const DeviceParams &params, int64_t rows,
                       int64_t cols, RandomKey key, bool computed)
    : params_(params),
      rows_(rows),
      cols_(cols),
      key_(key),
      areComputed_(computed),
      areStored_(!computed) {
  const PulsedParams &p = params_.common();
  const int64_t counts[] = {static_cast<int64_t>(params_.model().cellMembers.size()),
                            p.lifetime > 0.0f && p.lifetime_dtod != 0.0f,
                            p.diffusion > 0.0f && p.diffusion_dtod != 0.0f, p.reset_dtod != 0.0f};
  for (int part = 0; part < kParts; ++part) begins_[part + 1] = begins_[part] + counts[part];
  if (!areStored_) return;
  stored_ = Buffer<uint16_t>(context, count());
  draw(context, key_, stored_.data());
}

// Samples all planes.
void CellPlanes::draw(const Context &context, RandomKey key, uint16_t *planes) const {
  const PulsedParams &p = params_.common();
  const int64_t size = rows_ * cols_;
  const SampledCells sampled{rows_, cols_, planes, &p, key};
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size, kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.construct(sampled, planes, begin, end, stream);
  });
  const auto spread = [&](Part part, const SpreadSampler &sampler) {
    if (countOf(part) > 0) forEach(context, size, sampler);
  };
  spread(kDecayRates,
         {key, Purpose::Decay, p.lifetime_dtod, true, false, partOf(planes, kDecayRates)});
  spread(kDiffusions,
         {key, Purpose::Diffusion, p.diffusion_dtod, false, false, partOf(planes, kDiffusions)});
  spread(kResets, {key, Purpose::Reset, p.reset_dtod, false, true, partOf(planes, kResets)});
}

void CellPlanes::reserve(const Context &context) const {
  if (!areStored_ && context.scratch) lent_.reserveBeyondLimit(context, count());
}

// Address of the planes until the end of the context's operation.
const uint16_t *CellPlanes::lend(const Context &context) const {
  lent_.reserveBeyondLimit(context, count());
  const uint64_t operation = context.scratch->number();
  if (lentIn_ != operation) draw(context, key_, lent_.data());
  lentIn_ = operation;
  return lent_.data();
}

uint64_t CellPlanes::checksumOfLent(const Context &context) const {
  const CellLoan loan(context, *this);
  return checksumOf(context, loan.cells(), count());
}

CellLoan::CellLoan(const Context &context, const CellPlanes &planes) : planes_(planes) {
  if (planes.areStored()) {
    data_ = planes.stored_.data();
  } else if (context.scratch) {
    data_ = planes.lend(context);
  } else {
    operation_.emplace(own_.emplace(context));
    data_ = planes.lend(*own_);
  }
}

bool CellPlanes::isOf(const std::string &name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return last == kDrawn ||
         std::any_of(std::begin(kNames), std::end(kNames), [&](auto of) { return last == of; });
}

std::string CellPlanes::drawn(const std::string &name) { return inPlaceOf(name, kDrawn); }

std::string CellPlanes::stored(const std::string &drawn) {
  return inPlaceOf(drawn, kNames[kCells]);
}

std::vector<int64_t> CellPlanes::shapeOf(Part part) const {
  if (part != kCells) return {rows_, cols_};
  return {countOf(kCells), rows_, cols_};
}

void CellPlanes::saveTo(const Context &context, State &state, const std::string &prefix) const {
  if (state.packed) return;
  if (!areStored_) {
    if (!checksum_ && !state.shapesOnly) checksum_ = checksumOfLent(context);
    const uint64_t key = static_cast<uint64_t>(key_.k1) << 32 | key_.k0;
    state.values[prefix + kDrawn] = Value(Value::Map{
        {kKey, Value(inDigits(key))}, {kChecksum, Value(inDigits(checksum_.value_or(0)))}});
    return;
  }
  for (const Part part : {kCells, kDecayRates, kDiffusions, kResets}) {
    if (countOf(part) == 0) continue;
    Tensor tensor{Tensor::Type::F16, shapeOf(part), {}};
    if (!state.shapesOnly) {
      tensor.bytes.resize(tensor.byteSize());
      detail::copyToHost(context, tensor.bytes.data(), partOf(stored_.data(), part),
                         tensor.bytes.size());
    }
    state.tensors[prefix + kNames[part]] = std::move(tensor);
  }
}

// Calls use(part, bytes) for each tensor of planes that a state holds.
template <class Use>
void CellPlanes::eachSaved(const State &state, const std::string &prefix, const Use &use) const {
  for (const Part part : {kCells, kDecayRates, kDiffusions, kResets}) {
    const std::string name = prefix + kNames[part];
    if (countOf(part) == 0) {
      PULSORA_CHECK(StateError, state.tensors.count(name) == 0, "the state has a tensor '", name,
                    "', but the cells of this array do not differ there; the state belongs to "
                    "another configuration");
      continue;
    }
    const Tensor &tensor = state.get(name, Tensor::Type::F16, shapeOf(part));
    const size_t bytes = tensor.byteSize();
    PULSORA_CHECK(StateError, tensor.bytes.size() == bytes, "tensor '", name, "' has ",
                  tensor.bytes.size(), " bytes where ", bytes,
                  " are expected; the state belongs to another configuration");
    use(part, tensor.bytes);
  }
}

void CellPlanes::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  if (state.packed) return;
  const auto saved = state.values.find(prefix + kDrawn);
  if (saved != state.values.end()) {
    loadDrawn(context, saved->second, prefix);
    return;
  }
  if (!areComputed_) {  // without memory of its own, so that a failed load can be taken back
    eachSaved(state, prefix, [&](Part part, const HostBytes &bytes) {
      detail::copyFromHost(context, partOf(stored_.data(), part), bytes.data(), bytes.size());
    });
    return;
  }
  std::vector<uint16_t> planes(static_cast<size_t>(count()));
  eachSaved(state, prefix, [&](Part part, const HostBytes &bytes) {
    std::memcpy(partOf(planes.data(), part), bytes.data(), bytes.size());
  });
  Buffer<uint16_t> fresh(context, count());
  if (computeIfDrawn(context, planes, fresh)) return;
  if (!areStored_) stored_ = std::move(fresh);
  areStored_ = true;
  detail::copyFromHost(context, stored_.data(), planes.data(), stored_.bytes());
}

// Draws the cells of the key, and computes them from now on if they are these.
bool CellPlanes::computeIfDrawn(const Context &context, const std::vector<uint16_t> &planes,
                                Buffer<uint16_t> &fresh) {
  draw(context, key_, fresh.data());
  const bool same = copyOf(context, fresh.data(), count()) == planes;
  if (same) compute(key_, checksumOf(context, fresh.data(), count()));
  return same;
}

void CellPlanes::computeFromNowOn(const Context &context) {
  if (areStored_ && count() > 0) {
    Buffer<uint16_t> fresh(context, count());
    computeIfDrawn(context, copyOf(context, stored_.data(), count()), fresh);
  }
  areComputed_ = true;
}

void CellPlanes::loadDrawn(const Context &context, const Value &saved, const std::string &prefix) {
  const uint64_t number = numberIn(saved, kKey);
  const uint64_t checksum = numberIn(saved, kChecksum);
  const RandomKey key{static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)};
  const bool isOwn = !areStored_ && key.k0 == key_.k0 && key.k1 == key_.k1;
  if (isOwn && checksum_ == checksum) return;
  Buffer<uint16_t> fresh;
  if (!isOwn) {
    fresh = Buffer<uint16_t>(context, count());
    draw(context, key, fresh.data());
  }
  const uint64_t found =
      isOwn ? checksumOfLent(context) : checksumOf(context, fresh.data(), count());
  PULSORA_CHECK(StateError, found == checksum, "the state holds the key of the cells '", prefix,
                "', not the cells, and this version draws others by it (checksum ", inDigits(found),
                " instead of ", inDigits(checksum),
                "); load it in the version that saved it, into a tile whose devices have "
                "cells='stored', and save that");
  if (isOwn) {
    checksum_ = checksum;
  } else if (areComputed_) {
    compute(key, checksum);
  } else {
    key_ = key;
    stored_ = std::move(fresh);
  }
}

void CellPlanes::compute(RandomKey key, uint64_t checksum) {
  key_ = key;
  checksum_ = checksum;
  areStored_ = false;
  stored_ = {};
  lentIn_ = 0;
}

}  // namespace pulsora
