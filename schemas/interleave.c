/* Byte strings of several columns, laid out row by row; `interleave.py` calls this.
 *
 * Numpy lays out columns of one width. Where the rows' strings are of several widths, as texts are, Python would need an object
 * for each of them. */

#include <stdint.h>
#include <string.h>

typedef struct { /* one string a row: bytes[starts[row]] and on */
  const char *bytes;
  const int64_t *starts, *lengths;
} column;

/* Copies each row's string of the first column, then of the second, and so on; `to` has room for all of them. */
void interleave(const column *columns, int64_t count, int64_t rows, char *to) {
  for (int64_t row = 0; row < rows; row++)
    for (const column *each = columns; each < columns + count; each++) {
      memcpy(to, each->bytes + each->starts[row], (size_t)each->lengths[row]);
      to += each->lengths[row];
    }
}
