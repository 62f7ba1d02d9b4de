#include "linalg/packing.h"

#include "core/check.h"
#include "linalg/math_util.h"

namespace pulsora {
namespace {

// Checks lines [offset, offset + count) of `size`; `lines` is the word for lines in messages.
void checkLines(const char *function, const char *lines, int64_t count, int64_t offset,
                int64_t size) {
  PULSORA_CHECK(InputError, count <= size, function, ": K = ", count, " ", lines,
                " are more than the larger matrix has, which are ", size);
  PULSORA_CHECK(InputError, offset >= 0 && offset <= size - count, function, ": offset is ", offset,
                "; for K = ", count, " of ", size, " ", lines, " it must be between 0 and ",
                size - count);
}

void checkLength(const char *function, const char *lines, int64_t from, int64_t to) {
  PULSORA_CHECK(InputError, from == to, function, ": ", lines, " of from have ", from,
                " elements and those of to have ", to, "; they must have the same length");
}

}  // namespace

void packColumns(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                 int64_t offset) {
  checkLength("packColumns", "columns", from.rows, to.rows);
  checkLines("packColumns", "columns", from.cols, offset, to.cols);
  copy(context, from, to.block(0, offset, to.rows, from.cols));
}

void unpackColumns(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                   int64_t offset) {
  checkLength("unpackColumns", "columns", from.rows, to.rows);
  checkLines("unpackColumns", "columns", to.cols, offset, from.cols);
  copy(context, from.block(0, offset, from.rows, to.cols), to);
}

void packRows(const Context &context, MatrixView<const float> from, MatrixView<float> to,
              int64_t offset) {
  checkLength("packRows", "rows", from.cols, to.cols);
  checkLines("packRows", "rows", from.rows, offset, to.rows);
  copy(context, from, to.block(offset, 0, from.rows, to.cols));
}

void unpackRows(const Context &context, MatrixView<const float> from, MatrixView<float> to,
                int64_t offset) {
  checkLength("unpackRows", "rows", from.cols, to.cols);
  checkLines("unpackRows", "rows", to.rows, offset, from.rows);
  copy(context, from.block(offset, 0, to.rows, from.cols), to);
}

}  // namespace pulsora
