#include "lowrank/adapter_gradients.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::inputErrorOf;
using testing::isProduct;
using testing::LaidOut;
using testing::Layout;
using testing::layoutOf;

using ConstMatrix = MatrixView<const float>;

TEST(AdapterGradients, WorkedExample) {
  const float dc[] = {1, 2, 3, 4}, a[] = {1, 0, 2, -1}, b[] = {5, 6, 7, 8};
  float da[4] = {}, db[4] = {};
  const auto run = [&](bool accumulate) {
    adapterGradients({}, rowMajor(dc, 2, 2), rowMajor(a, 2, 2), rowMajor(b, 2, 2),
                     {rowMajor(da, 2, 2), accumulate}, {rowMajor(db, 2, 2), accumulate});
  };
  run(false);
  EXPECT_EQ(std::vector<float>(da, da + 4), (std::vector<float>{17, 23, 39, 53}));
  EXPECT_EQ(std::vector<float>(db, db + 4), (std::vector<float>{7, 10, -3, -4}));
  run(true);
  EXPECT_EQ(std::vector<float>(da, da + 4), (std::vector<float>{34, 46, 78, 106}));
  EXPECT_EQ(std::vector<float>(db, db + 4), (std::vector<float>{14, 20, -6, -8}));
}

// Element by element within 2 gamma_n |dC| |B|^T, added to what was there or not.
TEST(AdapterGradients, Property47_AreWithinTheRoundingOfSinglePrecision) {
  int64_t index = 0;
  for (const int64_t m : {1, 15, 16, 17, 33, 1000}) {
    for (const int64_t n : {1, 15, 16, 17, 33}) {
      for (const int64_t k : {1, 4, 8, 16, 64}) {
        ++index;
        const LaidOut<float> dc(m, n, layoutOf(index), 1);
        const LaidOut<float> a(m, k, layoutOf(index / 2), 2);
        const LaidOut<float> b(k, n, layoutOf(index / 3), 3);
        for (const float beta : {0.0f, 1.0f}) {
          LaidOut<float> da(m, k, layoutOf(index / 4), 4), db(k, n, layoutOf(index / 5), 5);
          const LaidOut<float> daBefore(da.view(), Layout::RowMajor);
          const LaidOut<float> dbBefore(db.view(), Layout::RowMajor);
          adapterGradients({}, dc.view(), a.view(), b.view(), {da.view(), beta != 0.0f},
                           {db.view(), beta != 0.0f});
          const ConstMatrix d = dc.view();
          ASSERT_TRUE(isProduct(1.0f, d, b.view().transposed(), beta, daBefore.view(), da.view()));
          ASSERT_TRUE(isProduct(1.0f, a.view().transposed(), d, beta, dbBefore.view(), db.view()));
        }
      }
    }
  }
}

TEST(AdapterGradients, MicroBatchesAddUpToOneBatch) {
  const LaidOut<float> dc(96, 20, Layout::RowMajor, 1), a(96, 4, Layout::RowMajor, 2);
  const LaidOut<float> b(4, 20, Layout::RowMajor, 3);
  LaidOut<float> whole(4, 20, Layout::RowMajor, 4), parts(4, 20, Layout::RowMajor, 5);
  const ConstMatrix d = dc.view(), left = a.view();
  adapterGradients({}, d, left, b.view(), {}, {whole.view()});
  for (int64_t begin = 0; begin < 96; begin += 24) {
    adapterGradients({}, d.block(begin, 0, 24, 20), left.block(begin, 0, 24, 4), b.view(), {},
                     {parts.view(), begin > 0});
  }
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 20; ++j)
      EXPECT_NEAR(whole.view()(i, j), parts.view()(i, j), 96 * 2 * 0x1p-24f * 20);
  }
}

TEST(AdapterGradients, SixteenBitCopiesServeLargeGradients) {
  const LaidOut<Half> a(40, 8, Layout::CutOut, 1), b(8, 30, Layout::ColMajor, 2);
  LaidOut<float> dc(40, 30, Layout::RowMajor, 3), da(40, 8, Layout::RowMajor, 4);
  LaidOut<float> db(8, 30, Layout::RowMajor, 5);
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 30; ++j) dc.view()(i, j) *= i % 2 ? 1e5f : 1e30f;
  }
  adapterGradients({}, dc.view(), a.view(), b.view(), {da.view()}, {db.view()});
  LaidOut<float> wideA(40, 8, Layout::RowMajor, 1), wideB(8, 30, Layout::RowMajor, 1);
  for (int64_t k = 0; k < 8; ++k) {
    for (int64_t i = 0; i < 40; ++i) wideA.view()(i, k) = widen(a.view()(i, k));
    for (int64_t j = 0; j < 30; ++j) wideB.view()(k, j) = widen(b.view()(k, j));
  }
  const ConstMatrix d = dc.view(), left = wideA.view(), right = wideB.view();
  EXPECT_TRUE(isProduct(1.0f, d, right.transposed(), 0.0f, da.view(), da.view()));
  EXPECT_TRUE(isProduct(1.0f, left.transposed(), d, 0.0f, db.view(), db.view()));
}

// One gradient has the bits of both, accumulates by itself, and needs no values of its own factor.
TEST(AdapterGradients, EachAloneHasTheBitsOfBoth) {
  const LaidOut<float> dc(70, 33, Layout::RowMajor, 1), a(70, 5, Layout::CutOut, 2);
  const LaidOut<float> b(5, 33, Layout::ColMajor, 3);
  LaidOut<float> da(70, 5, Layout::RowMajor, 4), db(5, 33, Layout::RowMajor, 5);
  LaidOut<float> aloneA(da.view(), Layout::RowMajor), aloneB(db.view(), Layout::RowMajor);
  const ConstAnyMatrix onlyShapeA{ElementType::Float32, nullptr, 70, 5, 5, 1};
  const ConstAnyMatrix onlyShapeB{ElementType::Float32, nullptr, 5, 33, 33, 1};
  adapterGradients({}, dc.view(), a.view(), b.view(), {da.view(), true}, {db.view(), false});
  adapterGradients({}, dc.view(), onlyShapeA, b.view(), {aloneA.view(), true}, {});
  adapterGradients({}, dc.view(), a.view(), onlyShapeB, {}, {aloneB.view()});
  for (int64_t i = 0; i < 70; ++i) {
    for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(da.view()(i, k), aloneA.view()(i, k));
  }
  for (int64_t k = 0; k < 5; ++k) {
    for (int64_t j = 0; j < 33; ++j) EXPECT_EQ(db.view()(k, j), aloneB.view()(k, j));
  }
}

TEST(AdapterGradients, AnEmptyBatchClearsOrKeeps) {
  const LaidOut<float> dc(0, 3, Layout::RowMajor, 1), a(0, 2, Layout::RowMajor, 1);
  const LaidOut<float> b(2, 3, Layout::RowMajor, 1);
  LaidOut<float> db(2, 3, Layout::RowMajor, 2);
  const float before = db.view()(1, 2);
  adapterGradients({}, dc.view(), a.view(), b.view(), {}, {db.view(), true});
  EXPECT_EQ(db.view()(1, 2), before);
  adapterGradients({}, dc.view(), a.view(), b.view(), {}, {db.view()});
  EXPECT_EQ(db.view()(1, 2), 0.0f);
}

TEST(AdapterGradients, ErrorsNameTheOperand) {
  const LaidOut<float> dc(4, 3, Layout::RowMajor, 1), a(4, 2, Layout::RowMajor, 1);
  const LaidOut<float> b(2, 3, Layout::RowMajor, 1), wrong(9, 9, Layout::RowMajor, 1);
  LaidOut<float> target(9, 9, Layout::RowMajor, 1);
  const auto errorOf = [&](ConstAnyMatrix left, ConstAnyMatrix right, MatrixView<float> da,
                           MatrixView<float> db) {
    return inputErrorOf([&] { adapterGradients({}, dc.view(), left, right, {da}, {db}); });
  };
  EXPECT_NE(errorOf(wrong.view(), b.view(), {}, {}).find("a is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf(a.view(), wrong.view(), {}, {}).find("b is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf(a.view(), b.view(), target.view(), {}).find("da is [9, 9]"), std::string::npos);
  EXPECT_NE(errorOf(a.view(), b.view(), {}, target.view()).find("db is [9, 9]"), std::string::npos);
}

}  // namespace
}  // namespace pulsora
