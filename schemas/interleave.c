/* Joins byte strings of several columns row by row; `interleave.py` calls this.
 *
 * Numpy does this for columns of one width. For strings of different widths, such as texts, Python would need an object per
 * string. */

#include <stdint.h>
#include <string.h>

typedef struct { /* one string per row, which begins at bytes[starts[row]] */
  const char *bytes;
  const int64_t *starts, *lengths;
} column;

/* For each row, copies its string of the first column, then of the second, and so on. `to` has room for all of them. */
void interleave(const column *columns, int64_t count, int64_t rows, char *to) {
  for (int64_t row = 0; row < rows; row++)
    for (const column *each = columns; each < columns + count; each++) {
      memcpy(to, each->bytes + each->starts[row], (size_t)each->lengths[row]);
      to += each->lengths[row];
    }
}
