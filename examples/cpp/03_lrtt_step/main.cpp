// A training step of the pulsed low-rank adapter, built from the library's parts: arrays, reads,
// initialisation, pulse trains. The program checks that it has the bits of a tile with an
// LRTTConfig.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <pulsora/additive_reads.h>
#include <pulsora/array_keys.h>
#include <pulsora/devices/constant_step.h>
#include <pulsora/devices/soft_bounds.h>
#include <pulsora/events.h>
#include <pulsora/linear_algebra.h>
#include <pulsora/lrtt.h>
#include <pulsora/pulsed_weight_updater.h>
#include <pulsora/tile.h>
#include <random>
#include <vector>

using namespace pulsora;

constexpr int kOut = 12, kIn = 20, kRank = 3, kBatch = 8;
constexpr float kGain = 0.5f, kLr = 0.05f;
constexpr uint64_t kSeed = 7;

// A matrix of this program.
struct Matrix {
  int64_t rows, cols;
  std::vector<float> values;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  MatrixView<float> view() { return rowMajor(values.data(), rows, cols); }
  bool operator==(const Matrix &other) const {
    return std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
  }
};

// One array with everything around it: cells, reads in both directions, pulse trains, and the read
// that projects an update's inputs. Random numbers are keyed by the array's slot in the tile: 0 is
// W, 1 is A, 2 is B.
struct Array {
  PulsedDevice cells;
  ForwardBackwardPass reads;
  AnalogRead projection;
  PulsedWeightUpdater updater;

  Array(const Context &context, const DeviceParams &device, int64_t rows, int64_t cols,
        uint32_t slot, Pass projected)
      : cells(context, device, rows, cols, key(slot, Role::Cells)),
        reads(context, IOParameters{}, IOParameters{}, rows, cols, key(slot, Role::Read)),
        projection(context, IOParameters{}, projected, projected == Pass::Forward ? cols : rows,
                   projected == Pass::Forward ? rows : cols, key(slot, Role::Projection)),
        updater(UpdateParameters{}, key(slot, Role::Update)) {}

  static RandomKey key(uint32_t slot, Role role) { return TileKeys{kSeed, 0}.of(slot, role); }
};

class HandMade {
 public:
  HandMade(const DeviceParams &visible, const DeviceParams &fast)
      : w_(context_, visible, kOut, kIn, 0, Pass::Forward),
        a_(context_, fast, kOut, kRank, 1, Pass::Backward),
        b_(context_, fast, kRank, kIn, 2, Pass::Forward),
        // With this alpha the first step moves W + alpha A B as far as plain gradient descent
        // would.
        alpha_(static_cast<float>(std::sqrt(kIn / (2.0 * kRank)) / static_cast<double>(kGain))) {
    // A starts at 0, like every array; B with normal values of standard deviation gain sqrt(2 /
    // inputs).
    Matrix start(kRank, kIn);
    kaimingNormal(context_, Array::key(2, Role::Start), 0, kIn, kGain, start.view());
    b_.cells.setWeights(context_, start.view(), ownWrite(0));
  }

  // y = W x + alpha A (B x), each array read through its own converters.
  void forward(Matrix &x, Matrix &y) {
    inner_.reserve(context_, kBatch * kRank);
    const ChainedRead injected{{b_.reads.forward(), b_.cells.weights()},
                               {a_.reads.forward(), a_.cells.weights()},
                               rowMajor(inner_.data(), kBatch, kRank),
                               {},
                               {},
                               alpha_};
    readTogether(context_, {w_.reads.forward(), w_.cells.weights()}, &injected, 1, x.view(),
                 y.view(), sample_, scratch_);
  }
  // dx = W^T d + alpha B^T (A^T d).
  void backward(Matrix &d, Matrix &dx) {
    inner_.reserve(context_, kBatch * kRank);
    const ChainedRead injected{{a_.reads.backward(), a_.cells.weights().transposed()},
                               {b_.reads.backward(), b_.cells.weights().transposed()},
                               rowMajor(inner_.data(), kBatch, kRank),
                               {},
                               {},
                               alpha_};
    readTogether(context_, {w_.reads.backward(), w_.cells.weights().transposed()}, &injected, 1,
                 d.view(), dx.view(), sample_, scratch_);
  }
  // A <- A - lr alpha d^T g and B <- B - lr alpha e^T x with g = B x and e = A^T d, both read
  // before A or B changes.
  void update(Matrix &x, Matrix &d) {
    Matrix g(kBatch, kRank), e(kBatch, kRank);
    b_.projection.run(context_, b_.cells.weights(), x.view(), g.view(), sample_);
    a_.projection.run(context_, a_.cells.weights().transposed(), d.view(), e.view(), sample_);
    a_.updater.update(context_, a_.cells, g.view(), d.view(), kLr * alpha_, sample_);
    b_.updater.update(context_, b_.cells, x.view(), e.view(), kLr * alpha_, sample_);
    sample_ += kBatch;
  }
  // W + alpha A B.
  Matrix weights() const {
    Matrix out(kOut, kIn);
    copy(context_, w_.cells.weights(), out.view());
    gemm(context_, alpha_, a_.cells.weights(), b_.cells.weights(), 1.0f, out.view());
    return out;
  }

 private:
  Context context_;  // one thread of the CPU
  Array w_, a_, b_;
  float alpha_;
  uint64_t sample_ = 0;
  Buffer<float> inner_;
  ScratchBuffer<float> scratch_;
};

int main() {
  SoftBounds::Params visible;
  ConstantStep::Params fast;
  fast.dw_min = 0.0005f;

  LRTTParams lrtt;
  lrtt.rank = kRank;
  lrtt.visible = visible;
  lrtt.fast = fast;
  lrtt.reinit_gain = kGain;
  lrtt.ab_lr_scale = LrScale::Alpha;
  lrtt.transfer_every = 0;  // this program makes none
  TileConfig config;
  config.compound = lrtt;
  Tile tile(kOut, kIn, config, kSeed);
  HandMade hand(visible, fast);

  std::mt19937 random(1);
  const auto fill = [&](Matrix &m, float scale) {
    for (float &v : m.values) v = scale * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
  };
  bool equal = true;
  for (int step = 0; step < 20; ++step) {
    Matrix x(kBatch, kIn), d(kBatch, kOut);
    fill(x, 1.0f);
    fill(d, 0.2f);
    Matrix y(kBatch, kOut), dx(kBatch, kIn), yHand(kBatch, kOut), dxHand(kBatch, kIn);
    tile.forward(x.view(), y.view());
    tile.backward(d.view(), dx.view());
    tile.update(x.view(), d.view(), kLr);
    hand.forward(x, yHand);
    hand.backward(d, dxHand);
    hand.update(x, d);
    equal = equal && y == yHand && dx == dxHand;
  }
  Matrix w(kOut, kIn);
  tile.getWeights(w.view());
  equal = equal && w == hand.weights();
  std::printf("20 steps by hand: %s as the tile's\n", equal ? "the same bits" : "other bits");
  return equal ? 0 : 1;
}
