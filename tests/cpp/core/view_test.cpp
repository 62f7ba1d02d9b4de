#include "core/view.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "core/container_views.h"

namespace pulsora {
namespace {

std::vector<float> ramp(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST(View, BlocksRowsAndTranspositionsNameTheSameElements) {
  std::vector<float> data = ramp(12);
  const MatrixView<float> m = rowMajor(data.data(), 3, 4);
  EXPECT_EQ(m(1, 2), 7.0f);
  EXPECT_EQ(m.transposed()(2, 1), 7.0f);
  EXPECT_EQ(m.row(1)[2], 7.0f);
  EXPECT_EQ(m.col(2)[1], 7.0f);
  EXPECT_EQ(m.block(1, 1, 2, 2)(0, 1), 7.0f);
  EXPECT_EQ(m.row(1).segment(1, 3)[1], 7.0f);
  EXPECT_EQ(colMajor(data.data(), 3, 4)(1, 2), 8.0f);
  const MatrixView<const float> constant = m;
  EXPECT_EQ(&constant(2, 3), &m(2, 3));
}

TEST(View, OfAContainerHasItsElements) {
  std::vector<float> data = ramp(12);
  const std::vector<float> constant = data;
  MatrixView<float> m = rowMajor(data, 3, 4);
  const MatrixView<const float> c = rowMajor(constant, 4, 3);
  m(1, 2) = -1.0f;
  EXPECT_EQ(data[6], -1.0f);
  EXPECT_EQ(c(2, 0), 7.0f);
  try {
    rowMajor(data, 3, 5);
    FAIL() << "12 elements are no matrix [3, 5]";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), "a container of 12 elements cannot be a matrix [3, 5]");
  }
  EXPECT_THROW(rowMajor(data, -3, -4), InputError);
}

TEST(View, KnowsItsStorageOrder) {
  std::vector<float> data = ramp(12);
  const MatrixView<float> m = rowMajor(data.data(), 3, 4);
  EXPECT_TRUE(m.isRowMajor() && m.isContiguous() && !m.isColMajor());
  EXPECT_TRUE(m.transposed().isColMajor() && !m.transposed().isRowMajor());
  EXPECT_TRUE(m.block(0, 0, 3, 2).isRowMajor() && !m.block(0, 0, 3, 2).isContiguous());
  EXPECT_TRUE(m.block(1, 0, 1, 2).isContiguous());
  EXPECT_TRUE(m.row(0).isContiguous() && !m.col(0).isContiguous());
}

TEST(View, SegmentsOfAVectorKeepItsStride) {
  std::vector<float> data = ramp(12);
  const VectorView<float> whole = vectorView(data.data(), 12);
  EXPECT_TRUE(whole.isContiguous());
  EXPECT_EQ(whole.size, 12);
  EXPECT_EQ(whole.segment(4, 3)[2], 7.0f);
  EXPECT_EQ(&whole.segment(4, 8)[7], &data[11]);
  const VectorView<float> column = rowMajor(data.data(), 3, 4).col(1);
  EXPECT_EQ(column.segment(1, 2).stride, 4);
  EXPECT_EQ(column.segment(1, 2)[1], 10.0f);
  EXPECT_TRUE(column.segment(2, 1).isContiguous());
}

}  // namespace
}  // namespace pulsora
