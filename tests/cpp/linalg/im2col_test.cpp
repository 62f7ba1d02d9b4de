#include "linalg/im2col.h"

#include <gtest/gtest.h>
#include <vector>

#include "core/backend.h"
#include "linalg/matrix_functors.h"
#include "util/matrix_test_util.h"

namespace pulsora::testing {
namespace {

class Patches : public ::testing::TestWithParam<PatchGrid> {};

std::vector<float> numbers(int64_t count, uint32_t salt) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = static_cast<uint64_t>(i) * 2654435761U + salt;
    values.push_back(static_cast<float>(word % 1009) / 97.0f - 5.0f);
  }
  return values;
}

// On two threads and every instruction set, element by element.
TEST_P(Patches, AreTakenAndAddedAsTheirDefinitionSays) {
  const PatchGrid g = GetParam();
  const int64_t images = 3;
  const int64_t pixels = g.channels * g.height * g.width;
  const int64_t elements = g.patches() * g.columns();
  const std::vector<float> x = numbers(images * pixels, 1);
  const std::vector<float> d = numbers(images * elements, 2);
  std::vector<float> taken(d.size()), added(x.size(), 0.0f);
  // The elements of a patch come last here, so that pixels gather theirs in the order of elements.
  for (int64_t i = 0; i < images; ++i) {
    int64_t column = 0;
    for (int64_t c = 0; c < g.channels; ++c) {
      for (int64_t a = 0; a < g.kernel[0]; ++a) {
        for (int64_t b = 0; b < g.kernel[1]; ++b, ++column) {
          for (int64_t p = 0; p < g.patches(); ++p) {
            const int64_t row = p / g.across() * g.stride[0] + a * g.dilation[0];
            const int64_t col = p % g.across() * g.stride[1] + b * g.dilation[1];
            const auto pixel =
                static_cast<size_t>(i * pixels + (c * g.height + row) * g.width + col);
            const auto at = static_cast<size_t>(i * elements + p * g.columns() + column);
            taken[at] = x[pixel];
            added[pixel] += d[at];
          }
        }
      }
    }
  }
  for (const Isa isa : supportedIsas()) {
    Context context;
    context.cpu.threads = 2;
    context.cpu.isa = isa;
    std::vector<float> patches(d.size(), -1.0f), sums(x.size(), -1.0f);
    im2col(context, g, images, x.data(), patches.data());
    col2im(context, g, images, d.data(), sums.data());
    EXPECT_TRUE(sameBits(patches, taken));
    EXPECT_TRUE(sameBits(sums, added));
  }
}

TEST_P(Patches, OfGroupsAreFollowedByOnes) {
  const PatchGrid g = GetParam();
  const int64_t images = 3;
  const std::vector<float> x = numbers(images * g.channels * g.height * g.width, 1);
  const Context context;
  for (const int64_t groups : {int64_t{1}, g.channels}) {
    PatchedImages patched{x.data(), images, g, groups, false};
    std::vector<float> plain(static_cast<size_t>(patched.rows() * patched.columns()));
    takePatches(context, patched, plain.data());
    const int64_t ofGroup = g.columns() / groups;
    std::vector<float> wanted;
    for (size_t i = 0; i < plain.size(); ++i) {
      wanted.push_back(plain[i]);
      if (static_cast<int64_t>(i) % ofGroup == ofGroup - 1) wanted.push_back(1.0f);
    }
    patched.hasOnes = true;
    ASSERT_EQ(patched.rows() * patched.columns(), static_cast<int64_t>(wanted.size()));
    std::vector<float> withOnes(wanted.size());
    takePatches(context, patched, withOnes.data());
    EXPECT_TRUE(sameBits(withOnes, wanted));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, Patches,
                         ::testing::Values(PatchGrid{1, 32, 32, {5, 5}, {1, 1}, {1, 1}},
                                           PatchGrid{3, 9, 7, {3, 2}, {2, 1}, {1, 2}},
                                           PatchGrid{2, 6, 40, {1, 19}, {1, 3}, {1, 1}},
                                           PatchGrid{2, 5, 30, {2, 11}, {1, 1}, {1, 1}},
                                           PatchGrid{1, 4, 35, {1, 17}, {1, 1}, {1, 1}},
                                           PatchGrid{1, 6, 18, {3, 3}, {1, 1}, {1, 1}},
                                           PatchGrid{2, 5, 6, {3, 1}, {1, 1}, {1, 1}},
                                           PatchGrid{4, 5, 5, {5, 5}, {1, 1}, {1, 1}}));

}  // namespace
}  // namespace pulsora::testing
