#include "linalg/packing.h"

#include <gtest/gtest.h>
#include <vector>

#include "util/matrix_test_util.h"

namespace pulsora {
namespace {

using testing::inputErrorOf;
using testing::kLayouts;
using testing::LaidOut;
using testing::Layout;
using testing::sameBits;

struct Part {
  int64_t length, k, size, offset;  // K of `size` lines of this length
};
// K = 0 and 1, below and above 32, all lines, the last ones, lines of length 0 and 1.
const Part kParts[] = {{17, 1, 1, 0},   {17, 5, 33, 0},   {17, 5, 33, 28}, {17, 33, 100, 31},
                       {1, 7, 40, 20},  {1, 1, 9, 8},     {33, 40, 40, 0}, {100, 3, 64, 61},
                       {16, 0, 12, 12}, {1000, 4, 16, 9}, {0, 2, 5, 1},    {9, 0, 0, 0}};

TEST(Packing, PutsColumnsAndRowsAtTheirOffsetAndBack) {
  const Context context;
  for (const Part &p : kParts) {
    for (const Layout few : kLayouts) {
      for (const Layout many : kLayouts) {
        SCOPED_TRACE(message("length ", p.length, ", K ", p.k, " of ", p.size, " at ", p.offset,
                             ", layouts ", int(few), int(many)));
        const LaidOut<float> columns(p.length, p.k, few, 1), rows(p.k, p.length, few, 1);
        LaidOut<float> wide(p.length, p.size, many, 2), high(p.size, p.length, many, 2);
        LaidOut<float> widePlain(p.length, p.size, many, 2), highPlain(p.size, p.length, many, 2);
        for (int64_t i = 0; i < p.length; ++i) {
          for (int64_t k = 0; k < p.k; ++k) {
            widePlain.view()(i, p.offset + k) = columns.view()(i, k);
            highPlain.view()(p.offset + k, i) = rows.view()(k, i);
          }
        }
        packColumns(context, columns.view(), wide.view(), p.offset);
        packRows(context, rows.view(), high.view(), p.offset);
        ASSERT_TRUE(sameBits(wide.storage(), widePlain.storage()));
        ASSERT_TRUE(sameBits(high.storage(), highPlain.storage()));

        LaidOut<float> columnsAgain(p.length, p.k, few, 3), rowsAgain(p.k, p.length, few, 3);
        unpackColumns(context, wide.view(), columnsAgain.view(), p.offset);
        unpackRows(context, high.view(), rowsAgain.view(), p.offset);
        ASSERT_TRUE(sameBits(columnsAgain.storage(), columns.storage()));
        ASSERT_TRUE(sameBits(rowsAgain.storage(), rows.storage()));
      }
    }
  }
}

TEST(Packing, RefusesWhatLiesOutside) {
  const Context context;
  LaidOut<float> few(4, 5, Layout::RowMajor, 1), many(4, 33, Layout::RowMajor, 2);
  const std::vector<float> before = many.storage();
  const auto pack = [&](int64_t offset) {
    return inputErrorOf([&] { packColumns(context, few.view(), many.view(), offset); });
  };
  EXPECT_EQ(pack(29),
            "packColumns: offset is 29; for K = 5 of 33 columns it must be between 0 and 28");
  EXPECT_EQ(pack(-1),
            "packColumns: offset is -1; for K = 5 of 33 columns it must be between 0 and 28");
  EXPECT_EQ(
      pack(INT64_MAX),
      "packColumns: offset is 9223372036854775807; for K = 5 of 33 columns it must be between "
      "0 and 28");
  EXPECT_EQ(inputErrorOf([&] { packColumns(context, many.view(), few.view(), 0); }),
            "packColumns: K = 33 columns are more than the larger matrix has, which are 5");
  EXPECT_EQ(inputErrorOf([&] { unpackColumns(context, many.view(), few.view(), 29); }),
            "unpackColumns: offset is 29; for K = 5 of 33 columns it must be between 0 and 28");
  EXPECT_EQ(
      inputErrorOf([&] { packColumns(context, few.view().transposed(), many.view(), 0); }),
      "packColumns: columns of from have 5 elements and those of to have 4; they must have the "
      "same length");
  const auto rowsOf = [](LaidOut<float> &m) { return m.view().transposed(); };
  EXPECT_EQ(inputErrorOf([&] { packRows(context, rowsOf(few), rowsOf(many), 29); }),
            "packRows: offset is 29; for K = 5 of 33 rows it must be between 0 and 28");
  EXPECT_EQ(inputErrorOf([&] { unpackRows(context, rowsOf(many), rowsOf(few), -2); }),
            "unpackRows: offset is -2; for K = 5 of 33 rows it must be between 0 and 28");
  EXPECT_EQ(inputErrorOf([&] { unpackRows(context, rowsOf(few), rowsOf(many), 0); }),
            "unpackRows: K = 33 rows are more than the larger matrix has, which are 5");
  EXPECT_TRUE(sameBits(many.storage(), before));
}

}  // namespace
}  // namespace pulsora
