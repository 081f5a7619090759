/* Columns that C fills. `column_buffers.py` allocates their memory and reads them.
 *
 * A node is a part of the event's schema: the event itself, a field, an array's items, an enum's symbol. The values of each node
 * are appended to its own column. If a value doesn't fit, the `append` functions return 0. Then the caller removes all values of
 * this event. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BOOLEAN, INT, LONG, FLOAT, DOUBLE, STRING, ENUM, ARRAY, RECORD, SYMBOL, BYTES, FIXED, SCALAR, NUMBER, MIXED };

typedef struct {
  int64_t kind, is_nullable;
  int64_t first, members; /* index of the first member, and their number: fields, items of an array, symbols of an enum */
  const char *name;       /* the name of a field or symbol */
  int64_t name_length;
  const void *missing;    /* a field's default value; NULL: the field is required */
  int64_t capacity, room; /* most values, most bytes of text */
  char *cells;            /* numbers, booleans, or texts end to end */
  int64_t *lengths;       /* the lengths of texts and arrays */
  uint8_t *valid;         /* 0 for a null; NULL if the node can't be null, or its null is NaN */
} node;

_Static_assert(sizeof(node) == 96, "expected pointers of 8 bytes, as column_buffers.py writes them");

typedef struct {
  const node *nodes;
  int64_t *counts, *sizes; /* for each node: values so far, and bytes of text so far */
} columns;

/* The index of the next value; -1 if the column is full. */
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
  case DOUBLE:
  case NUMBER: ((double *)n->cells)[place] = NAN; return 1;
  case RECORD:
    for (int64_t member = n->first; member < n->first + n->members; member++)
      if (!append_null(c, member)) return 0;
    return 1;
  }
  n->lengths[place] = 0;
  return 1;
}
