/* Columns that C fills and `column_buffers.py` makes room for, and reads.
 *
 * A node is a type within the event's: the event itself, a field, an array's items, an enum's symbol. Each appends its values to
 * a column of its own. All functions return 0 where the value doesn't fit: the caller takes back what was appended before. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BOOLEAN, INT, LONG, FLOAT, DOUBLE, STRING, ENUM, ARRAY, RECORD, SYMBOL, BYTES, FIXED };

typedef struct {
  int64_t kind, is_nullable;
  int64_t first, members; /* a record's fields, an array's items, an enum's symbols: nodes side by side */
  const char *name;       /* of a field or symbol */
  int64_t name_length;
  const void *missing;    /* what a field is that isn't there; NULL: it must be there */
  int64_t capacity, room; /* values, bytes of text */
  char *cells;            /* numbers, booleans, or texts end to end */
  int64_t *lengths;       /* of texts and arrays */
  uint8_t *valid;         /* 0 for null; NULL where there are none, or null is NaN */
} node;

_Static_assert(sizeof(node) == 96, "pointers of 8 bytes, as column_buffers.py writes them");

typedef struct {
  const node *nodes;
  int64_t *counts, *sizes; /* values of each node so far, and their bytes of text */
} columns;

/* The place of the next value, -1 where there is no room. */
static inline int64_t next_place(columns *c, int64_t index) {
  const node *n = c->nodes + index;
  int64_t place = c->counts[index];
  if (place == n->capacity) return -1;
  c->counts[index]++;
  if (n->valid) n->valid[place] = 1;
  return place;
}

static inline int append_bytes(columns *c, int64_t index, int64_t place, const void *bytes, int64_t length) {
  const node *n = c->nodes + index;
  if (length > n->room - c->sizes[index]) return 0;
  memcpy(n->cells + c->sizes[index], bytes, (size_t)length);
  c->sizes[index] += length;
  n->lengths[place] = length;
  return 1;
}

static inline int append_null(columns *c, int64_t index) {
  const node *n = c->nodes + index;
  int64_t place = next_place(c, index);
  if (place < 0) return 0;
  if (n->valid) n->valid[place] = 0;
  switch (n->kind) {
  case BOOLEAN: n->cells[place] = 0; return 1;
  case INT: ((int32_t *)n->cells)[place] = 0; return 1;
  case LONG: ((int64_t *)n->cells)[place] = 0; return 1;
  case FLOAT: ((float *)n->cells)[place] = NAN; return 1;
  case DOUBLE: ((double *)n->cells)[place] = NAN; return 1;
  case RECORD:
    for (int64_t member = n->first; member < n->first + n->members; member++)
      if (!append_null(c, member)) return 0;
    return 1;
  }
  n->lengths[place] = 0;
  return 1;
}
