/* Parses JSON events with yyjson and copies them into columns. `columns.py` calls this.
 *
 * yyjson stores the values of a text next to each other, a container before its members. yyjson.h documents this layout, and its
 * inline functions, which are compiled into every program that uses yyjson, read it in the same way as this file. `columns.py`
 * takes the addresses of yyjson's functions from the loaded library. So nothing is linked, and any C compiler can compile this
 * file without other headers. If a number has 769 digits or more, its last bit may differ from msgspec's result, because yyjson
 * ignores further digits. */

#include "../columns.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct { /* yyjson_val */
  uint64_t tag;  /* the kind in the lowest byte; above it, the length of a text, or the number of items or pairs */
  union {
    uint64_t natural;
    int64_t integer;
    double real;
    const char *text;
    size_t after; /* bytes from a container to the value after it */
  } is;
} value;

enum { /* kinds of value */
  JSON_NULL = 2, JSON_FALSE = 3, JSON_TRUE = 11,
  JSON_NATURAL = 4, JSON_NEGATIVE = 12, JSON_REAL = 20,
  JSON_ARRAY = 6, JSON_OBJECT = 7
};
_Static_assert(sizeof(value) == 16, "expected pointers of 8 bytes");

typedef struct {
  void *(*read)(const char *text, size_t length, uint32_t flags, const void *allocator, void *error); /* yyjson_read_opts */
  int (*pool)(void *allocator, void *memory, size_t size);                                            /* yyjson_alc_pool_init */
} library;

typedef struct {
  columns to;
  int64_t *seen; /* for each node, the number of the last record that had this field */
  int64_t records;
} state;

enum { HEAD = 5 }; /* a zero byte and a schema ID, which Confluent's serializer for JSON Schema writes before the text */

enum { DEEPEST = 200 }; /* msgspec rejects values near Python's recursion limit, so this file skips all that may be so deep */

static int is_container(const value *v) { return (v->tag & 6) == 6; }

static int is_text(const value *v) { return (v->tag & 7) == 5; }

static const value *after(const value *v) {
  return is_container(v) ? (const value *)((const char *)v + v->is.after) : v + 1;
}

/* Whether the value of an unwanted field is surely not nested deeper than `DEEPEST`: it has no more containers than that. */
static int is_shallow(const value *v) {
  if (!is_container(v) || v->is.after <= DEEPEST * sizeof *v) return 1;
  int containers = 0;
  for (const value *end = after(v); v < end; v++) containers += is_container(v);
  return containers <= DEEPEST;
}

/* The index of the field with this name; -1 if there is none. Tries field `likely` first. */
static int64_t field_of(const node *members, int64_t count, int64_t likely, const value *text) {
  int64_t length = (int64_t)(text->tag >> 8);
  for (int64_t tried = 0; tried < count; tried++, likely++) {
    if (likely >= count) likely = 0;
    const node *m = members + likely;
    if (m->name_length == length && !memcmp(m->name, text->is.text, (size_t)length)) return likely;
  }
  return -1;
}

/* Whether this text is one of the symbols, which are sorted by length, then by bytes. */
static int is_symbol(const node *symbols, int64_t count, const value *text) {
  int64_t length = (int64_t)(text->tag >> 8);
  for (int64_t low = 0, high = count; low < high;) {
    int64_t middle = (low + high) / 2;
    const node *m = symbols + middle;
    int order = m->name_length != length ? (m->name_length < length ? -1 : 1) : memcmp(m->name, text->is.text, (size_t)length);
    if (!order) return 1;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return 0;
}

static int append(state *s, int64_t index, const value *v);

static int append_integer(const node *n, int64_t count, const value *v) {
  int64_t number = v->is.integer;
  int kind = (int)(v->tag & 0xFF);
  if (kind != JSON_NEGATIVE && (kind != JSON_NATURAL || number < 0)) return 0; /* not an integer, or 2^63 and more */
  if (n->kind == LONG) {
    ((int64_t *)n->cells)[count] = number;
    return 1;
  }
  ((int32_t *)n->cells)[count] = (int32_t)number;
  return number >= INT32_MIN && number <= INT32_MAX;
}

static int append_real(const node *n, int64_t count, const value *v) {
  double number;
  switch ((int)(v->tag & 0xFF)) {
  case JSON_FALSE:
  case JSON_TRUE:
    if (n->kind != NUMBER) return 0;
    number = v->tag == JSON_TRUE;
    break;
  case JSON_REAL: number = v->is.real; break;
  case JSON_NATURAL: number = (double)v->is.natural; break;
  case JSON_NEGATIVE: number = (double)v->is.integer; break;
  default: return 0;
  }
  if (n->kind != FLOAT) {
    ((double *)n->cells)[count] = number;
    return 1;
  }
  if (fabs(number) >= 3.4028235677973366e38) return 0; /* would round to infinity */
  ((float *)n->cells)[count] = (float)number;
  return 1;
}

static int append_text(state *s, int64_t index, int64_t place, const value *v) {
  const node *n = s->to.nodes + index;
  if (!is_text(v) || (n->kind == ENUM && !is_symbol(s->to.nodes + n->first, n->members, v))) return 0;
  return append_bytes(&s->to, index, place, v->is.text, (int64_t)(v->tag >> 8));
}

/* A text, or an integer of up to 64 bits as its decimal text. */
static int append_scalar(state *s, int64_t index, int64_t place, const value *v) {
  int is_negative = (v->tag & 0xFF) == JSON_NEGATIVE && v->is.integer < 0;
  if (is_text(v)) return append_bytes(&s->to, index, place, v->is.text, (int64_t)(v->tag >> 8));
  if ((v->tag & 0xFF) != JSON_NATURAL && (v->tag & 0xFF) != JSON_NEGATIVE) return 0;
  char text[20], *start = text + sizeof text;
  uint64_t left = is_negative ? -v->is.natural : v->is.natural;
  do *--start = (char)('0' + left % 10);
  while (left /= 10);
  if (is_negative) *--start = '-';
  return append_bytes(&s->to, index, place, start, text + sizeof text - start);
}

/* A text, a number or a boolean, as its text: see `mixed.py`, which writes them in the same way. */
static int append_mixed(state *s, int64_t index, int64_t place, const value *v) {
  double number = v->is.real;
  char text[32];
  if (v->tag == JSON_TRUE) return append_bytes(&s->to, index, place, "true", 4);
  if (v->tag == JSON_FALSE) return append_bytes(&s->to, index, place, "false", 5);
  if ((v->tag & 0xFF) != JSON_REAL) return append_scalar(s, index, place, v);
  if (floor(number) == number && fabs(number) < 0x1p63) {
    int length = snprintf(text, sizeof text, "%lld", (long long)number);
    return append_bytes(&s->to, index, place, text, length);
  }
  int length = 0;
  for (int digits = 15; digits <= 17; digits++) {
    length = snprintf(text, sizeof text, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  /* Another locale has another decimal point. */
  return !text[strspn(text, "+-.0123456789e")] && append_bytes(&s->to, index, place, text, length);
}

static int append_items(state *s, const node *n, int64_t count, const value *v) {
  if ((v->tag & 0xFF) != JSON_ARRAY) return 0;
  int64_t left = n->lengths[count] = (int64_t)(v->tag >> 8);
  for (const value *item = v + 1; left; left--, item = after(item))
    if (!append(s, n->first, item)) return 0;
  return 1;
}

static int append_members(state *s, const node *n, const value *v) {
  if ((v->tag & 0xFF) != JSON_OBJECT) return 0;
  int64_t record = ++s->records, likely = 0, found = 0;
  const value *key = v + 1;
  for (uint64_t left = v->tag >> 8; left; left--, key = after(key + 1)) {
    int64_t member = field_of(s->to.nodes + n->first, n->members, likely, key);
    if (member < 0) {
      if (!is_shallow(key + 1)) return 0;
      continue;
    }
    likely = member + 1;
    member += n->first;
    if (s->seen[member] == record) return 0; /* the field occurs twice */
    s->seen[member] = record;
    found++;
    if (!append(s, member, key + 1)) return 0;
  }
  if (found == n->members) return 1;
  for (int64_t member = n->first; member < n->first + n->members; member++) {
    const value *missing = s->to.nodes[member].missing;
    if (s->seen[member] != record && (!missing || !append(s, member, missing))) return 0;
  }
  return 1;
}

static int append(state *s, int64_t index, const value *v) {
  const node *n = s->to.nodes + index;
  if (v->tag == JSON_NULL) return n->is_nullable && append_null(&s->to, index);
  int64_t count = next_place(&s->to, index);
  if (count < 0) return 0;
  switch (n->kind) {
  case BOOLEAN:
    n->cells[count] = v->tag == JSON_TRUE;
    return v->tag == JSON_TRUE || v->tag == JSON_FALSE;
  case INT:
  case LONG: return append_integer(n, count, v);
  case FLOAT:
  case DOUBLE:
  case NUMBER: return append_real(n, count, v);
  case STRING:
  case ENUM: return append_text(s, index, count, v);
  case SCALAR: return append_scalar(s, index, count, v);
  case MIXED: return append_mixed(s, index, count, v);
  case ARRAY: return append_items(s, n, count, v);
  }
  return append_members(s, n, v);
}

/* Parses `count` texts, which lie in `text`, and appends the events among them to the columns of `nodes`. Marks in `odd` the texts
 * that it skips: they aren't events, or `each.py` must read them. `counters` has five numbers for each node: values and bytes
 * appended, a copy of both, and `seen`. They are zeros at the first call for these columns; later calls append more, and only
 * `seen` must be zeros again. `memory` is for yyjson, and has room for the longest text. */
void json_columns(const library *lib, const node *nodes, int64_t node_count, int64_t *counters, const char *text,
                  const int64_t *starts, const int64_t *lengths, int64_t count, char *memory, int64_t size, uint8_t *odd) {
  state s = {{nodes, counters, counters + node_count}, counters + 4 * node_count, 0};
  int64_t *before = counters + 2 * node_count;
  size_t bytes = 2 * (size_t)node_count * sizeof *counters;
  void *allocator[4]; /* yyjson_alc */
  for (int64_t i = 0; i < count; i++) {
    lib->pool(allocator, memory, (size_t)size);
    int64_t head = lengths[i] >= HEAD && !text[starts[i]] ? HEAD : 0;
    const value *const *document = lib->read(text + starts[i] + head, (size_t)(lengths[i] - head), 0, allocator, NULL);
    memcpy(before, counters, bytes);
    odd[i] = !document || !append(&s, 0, *document);
    if (odd[i]) memcpy(counters, before, bytes);
  }
}
