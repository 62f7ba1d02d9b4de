// Low-rank updates as a user's program calls them: a case of 2 x 2 matrices that is worked out by
// hand, in every type of numbers. Small whole numbers leave nothing to round, so that all must
// agree. Exit status 0 if so.

#include <cstdio>
#include <cstdlib>
#include <pulsora/adapter_gradients.h>
#include <pulsora/gated_low_rank.h>
#include <string>
#include <vector>

namespace {

template <class T>
struct Matrix {
  std::vector<T> values;

  Matrix(float a, float b, float c, float d) {
    for (const float value : {a, b, c, d}) values.push_back(pulsora::narrow<T>(value));
  }
  pulsora::MatrixView<T> view() { return pulsora::rowMajor(values.data(), 2, 2); }
};

template <class T>
void require(const Matrix<T> &made, const std::vector<float> &wanted, const char *what) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float value = pulsora::widen(made.values[i]);
    if (value == wanted[i]) continue;
    std::fprintf(stderr, "failed: %s[%zu] is %g, not %g\n", what, i, value, wanted[i]);
    std::exit(1);
  }
}

template <class T>
Matrix<T> empty() {
  return {-99.0f, -99.0f, -99.0f, -99.0f};
}

template <class T>
void checkUpdate(const pulsora::Context &context) {
  Matrix<T> x{1, 2, 3, -1}, v{2, 0, 1, 1}, codes{1, 2, 0, -1}, u{1, 3, -2, 1};
  pulsora::GatedLowRank update;
  update.x = x.view();
  update.v = v.view();
  update.codes = pulsora::Codes::perRow(codes.view());
  update.u = u.view();
  update.scale = 2.0f;

  // x v = [[4, 2], [5, -1]], gated [[4, 4], [0, 1]].
  Matrix<T> y = empty<T>();
  pulsora::gatedLowRank(context, update, {}, y.view());
  require(y, {32, -8, 6, 2}, "the update");
  Matrix<T> base{1, 2, 3, 4};
  pulsora::gatedLowRank(context, update, base.view(), y.view());
  require(y, {33, -6, 9, 6}, "a base and the update");

  Matrix<T> weight{1, 0, 2, 1};
  std::vector<T> bias = {pulsora::narrow<T>(10.0f), pulsora::narrow<T>(-1.0f)};
  pulsora::gatedLowRankLinear(context, update, weight.view(), pulsora::rowMajor(bias.data(), 1, 2),
                              y.view());
  require(y, {43, -5, 19, 6}, "a layer and the update");

  // dy u = [[1, 3], [4, 5]], gated [[1, 6], [0, -5]].
  Matrix<T> dy{1, 0, 2, -1}, dx = empty<T>(), dv = empty<T>(), du = empty<T>();
  Matrix<float> dcodes = empty<float>();
  pulsora::GatedGradients gradients;
  gradients.x = dx.view();
  gradients.v = dv.view();
  gradients.codes = dcodes.view();
  gradients.u = du.view();
  pulsora::gatedLowRankBackward(context, update, dy.view(), gradients);
  require(dx, {4, 14, 0, -10}, "the gradient of x");
  require(dv, {2, -18, 4, 34}, "the gradient of v");
  require(dcodes, {8, 12, 40, -10}, "the gradient of codes");
  require(du, {8, 12, 0, -2}, "the gradient of u");
}

template <class T>
void checkAdapter(const pulsora::Context &context) {
  Matrix<float> dc{1, 0, 2, -1}, da = empty<float>(), db = empty<float>();
  Matrix<T> a{1, 2, 3, -1}, b{2, 0, 1, 1};
  pulsora::adapterGradients(context, dc.view(), a.view(), b.view(), {da.view()}, {db.view()});
  require(da, {2, 1, 4, 1}, "dA");
  require(db, {7, -3, 0, 1}, "dB");
  pulsora::adapterGradients(context, dc.view(), a.view(), b.view(), {da.view(), true},
                            {db.view(), true});
  require(da, {4, 2, 8, 2}, "dA of two batches");
  require(db, {14, -6, 0, 2}, "dB of two batches");
}

}  // namespace

int main() {
  const pulsora::Context context;  // one thread of the CPU
  checkUpdate<float>(context);
  checkUpdate<pulsora::Half>(context);
  checkUpdate<pulsora::BFloat16>(context);
  checkAdapter<float>(context);
  checkAdapter<pulsora::Half>(context);
  checkAdapter<pulsora::BFloat16>(context);

  // What does not fit is refused by name.
  Matrix<float> x{1, 2, 3, 4}, y = empty<float>();
  pulsora::GatedLowRank update;
  update.x = update.v = x.view();
  update.u = pulsora::rowMajor(x.values.data(), 2, 1);
  try {
    pulsora::gatedLowRank(context, update, {}, y.view());
  } catch (const pulsora::InputError &error) {
    if (std::string(error.what()).find("u is [2, 1]") == std::string::npos) throw;
    require(y, {-99, -99, -99, -99}, "y of a refused update");
    std::puts("low-rank updates are those worked out by hand");
    return 0;
  }
  std::fputs("failed: an update of another rank is taken\n", stderr);
  return 1;
}
