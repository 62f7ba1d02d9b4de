#include "lrtt/reinit.h"

#include <algorithm>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "linalg/initialise.h"
#include "linalg/math_util.h"
#include "numerics/math.h"

namespace pulsora {
namespace {

double dot(const double *a, const double *b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum = pulsora::fma(a[i], b[i], sum);
  return sum;
}

// Modified Gram-Schmidt; the second sweep removes what rounding left after the first (Kahan's
// "twice is enough").
void orthonormalise(std::vector<double> &rows, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; ++i) {
    double *row = &rows[static_cast<size_t>(i * n)];
    for (int sweep = 0; sweep < 2; ++sweep) {
      for (int64_t j = 0; j < i; ++j) {
        const double *other = &rows[static_cast<size_t>(j * n)];
        const double share = dot(row, other, n);
        for (int64_t c = 0; c < n; ++c) row[c] = pulsora::fma(-share, other[c], row[c]);
      }
      const double norm = pulsora::sqrt(dot(row, row, n));
      for (int64_t c = 0; c < n; ++c) row[c] /= norm;
    }
  }
}

using Source = ReinitSource;
using Settings = LRTTSettings;

void kaiming(const Context &context, const Settings &settings, const Source &source,
             MatrixView<float> out) {
  kaimingNormal(context, source.key, source.number, out.cols, settings.gain, out);
}

void orthogonal(const Context &context, const Settings &settings, const Source &source,
                MatrixView<float> out) {
  drawOrthogonalRows(context, source.key, source.number, settings.rowNorm, out, source.work);
}

void directed(const Context &context, const Settings &settings, const Source &source,
              MatrixView<float> out) {
  scaleRows(context, source.vectors, settings.rowNorm, out, source.work);
}

using After = ReinitScheme::AfterTransfer;

// In the order of the enumeration Reinit.
constexpr ReinitScheme kSchemes[] = {
    /* kaiming    */ {&kaiming, After::DrawB},
    /* orthogonal */ {&orthogonal, After::DrawB, false, true},
    /* keep_b     */ {&kaiming, After::KeepB},
    /* decay      */ {&kaiming, After::DecayB},
    /* none       */ {&kaiming, After::Nothing},
    /* svd        */ {&directed, After::DrawB, true, true},
};
static_assert(sizeof kSchemes / sizeof *kSchemes ==
              sizeof EnumNames<Reinit>::kNames / sizeof *EnumNames<Reinit>::kNames);

}  // namespace

const ReinitScheme &reinitScheme(Reinit reinit) { return kSchemes[static_cast<size_t>(reinit)]; }

void drawOrthogonalRows(const Context &context, RandomKey key, uint64_t number, float rowNorm,
                        MatrixView<float> out, HostRows &work) {
  PULSORA_CHECK(InputError, out.rows <= out.cols, "no ", out.rows, " rows of length ", out.cols,
                " are orthogonal; there can be at most as many as they are long");
  work.reserve(out.size());
  const Context host;  // equal bits on every backend; too small for a kernel
  drawNormalRows(host, key, number, 1.0f, rowMajor(work.values.data(), out.rows, out.cols));
  std::copy(work.values.begin(), work.values.end(), work.precise.begin());
  orthonormalise(work.precise, out.rows, out.cols);
  for (size_t i = 0; i < work.precise.size(); ++i)
    work.values[i] = static_cast<float>(static_cast<double>(rowNorm) * work.precise[i]);
  detail::copyFromHost(context, out.data, work.values.data(), work.values.size() * sizeof(float));
}

void scaleRows(const Context &context, MatrixView<const float> vectors, float rowNorm,
               MatrixView<float> out, HostRows &work) {
  work.reserve(vectors.size());
  std::vector<float> &rows = work.values;
  detail::copyToHost(context, rows.data(), vectors.data, rows.size() * sizeof(float));
  const int64_t n = vectors.cols;
  for (int64_t i = 0; i < vectors.rows; ++i) {
    float *row = &rows[static_cast<size_t>(i * n)];
    double square = 0.0;
    for (int64_t c = 0; c < n; ++c)
      square = pulsora::fma(static_cast<double>(row[c]), static_cast<double>(row[c]), square);
    const double factor = square > 0.0 ? static_cast<double>(rowNorm) / pulsora::sqrt(square) : 0.0;
    for (int64_t c = 0; c < n; ++c)
      row[c] = static_cast<float>(factor * static_cast<double>(row[c]));
  }
  detail::copyFromHost(context, out.data, rows.data(), rows.size() * sizeof(float));
}

}  // namespace pulsora
