/* Checks Avro records of one writer schema, and copies their wanted fields into columns; `columns.py` calls this.
 *
 * `program.py` makes a step for each type of the writer schema. A step reads a value, and appends it to its node if it has one.
 * Nothing is read beyond a record's end, and each item of an array or a map takes at least a byte. So the time for a record is
 * bounded by its size. Encoding: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding */

#include "../columns.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "floats are copied as Avro has them: the lowest byte first"
#endif

typedef struct {
  const char *text;
  int64_t length;
} symbol;

typedef struct { /* a type of the writer schema */
  int64_t kind;   /* a node's kind, or one of the three below */
  int64_t target; /* the node that takes the values; -1: they are skipped */
  int64_t first, members; /* consecutive steps: a record's fields, a union's branches, an array's items, the values of a map: first
                             those of keys that nobody wants, then those of each wanted key */
  int64_t size;   /* bytes of a fixed or skipped value, or number of an enum's symbols */
  const symbol *symbols; /* of a wanted enum; the wanted keys of a map */
} step;

enum { PASS = MIXED + 1, MAP, UNION }; /* PASS: skip `size` bytes */

_Static_assert(sizeof(step) == 48, "pointers of 8 bytes, as columns.py writes them");

typedef enum { /* as in columns.py */
  FINE, OTHER_SCHEMA, ENDS_EARLY, NO_BOOLEAN, INT_TOO_LARGE, LONG_TOO_LARGE, LENGTH_TOO_LARGE, NEGATIVE, NO_BRANCH, NO_SYMBOL,
  WRONG_SIZE, NO_UTF8, NULL_REFUSED, LEFT_OVER, NO_ROOM, DOUBLED_KEY, TYPE_REFUSED
} fault;

typedef struct {
  const step *steps;
  columns to;
  int64_t *finite; /* for each node: a `finiteness` */
  const uint8_t *at, *end;
  fault fault;
  const step *where; /* the step of the fault */
} reader;

typedef enum { UNKNOWN, FINITE, NOT_FINITE } finiteness; /* NOT_FINITE: some number may be NaN or infinite */

enum { HEAD = 5, LONGEST_LENGTH = 5 }; /* a Kafka record is smaller than 2^34 bytes */

static int read_value(reader *r, const step *s);

static int fail(reader *r, const step *s, fault why) {
  r->fault = why;
  r->where = s;
  return 0;
}

/* Reads an integer of at most `longest` bytes. If it has so many, the last byte is at most `last`. */
static int read_integer(reader *r, const step *s, int longest, uint8_t last, fault too_large, int64_t *to) {
  uint64_t raw = 0;
  for (int place = 0; place < longest; place++) {
    if (r->at == r->end) return fail(r, s, ENDS_EARLY);
    uint8_t byte = *r->at++;
    if (place == longest - 1 && byte > last) break;
    raw |= (uint64_t)(byte & 0x7F) << 7 * place;
    if (byte < 0x80) {
      *to = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
      return 1;
    }
  }
  return fail(r, s, too_large);
}

/* Reads a length, a count or an index. */
static int read_length(reader *r, const step *s, int64_t *to) {
  return read_integer(r, s, LONGEST_LENGTH, 0x7F, LENGTH_TOO_LARGE, to);
}

static int pass_bytes(reader *r, const step *s, int64_t count, int64_t size) {
  if (size && count > (r->end - r->at) / size) return fail(r, s, ENDS_EARLY);
  r->at += count * size;
  return 1;
}

/* The index for a value in the step's node. */
static int take_place(reader *r, const step *s, int64_t *place) {
  *place = next_place(&r->to, s->target);
  return *place >= 0 || fail(r, s, NO_ROOM);
}

static int read_number(reader *r, const step *s) {
  int64_t whole = 0, place;
  double real = 0;
  switch (s->kind) {
  case BOOLEAN:
    if (r->at == r->end) return fail(r, s, ENDS_EARLY);
    if ((whole = *r->at++) > 1) return fail(r, s, NO_BOOLEAN);
    break;
  case INT:
    if (!read_integer(r, s, 5, 0x0F, INT_TOO_LARGE, &whole)) return 0;
    break;
  case LONG:
    if (!read_integer(r, s, 10, 0x01, LONG_TOO_LARGE, &whole)) return 0;
    break;
  case FLOAT: {
    float single = 0;
    if (!pass_bytes(r, s, 1, sizeof single)) return 0;
    memcpy(&single, r->at - sizeof single, sizeof single);
    real = single;
    break;
  }
  default:
    if (!pass_bytes(r, s, 1, sizeof real)) return 0;
    memcpy(&real, r->at - sizeof real, sizeof real);
  }
  if (s->target < 0) return 1;
  if (!take_place(r, s, &place)) return 0;
  const node *n = r->to.nodes + s->target;
  if (s->kind <= LONG) real = (double)whole; /* Avro's resolution goes through double */
  switch (n->kind) {
  case BOOLEAN: n->cells[place] = (char)whole; break;
  case INT: ((int32_t *)n->cells)[place] = (int32_t)whole; break;
  case LONG: ((int64_t *)n->cells)[place] = whole; break;
  case FLOAT:
    if (s->kind == FLOAT) memcpy((float *)n->cells + place, r->at - sizeof(float), sizeof(float)); /* keeps the bits of NaN */
    else ((float *)n->cells)[place] = (float)real;
    break;
  default: ((double *)n->cells)[place] = real;
  }
  r->finite[s->target] = NOT_FINITE; /* only vectors are looked at */
  return 1;
}

static int is_utf8(const uint8_t *at, const uint8_t *end) {
  while (at < end) {
    uint64_t eight;
    if (end - at >= 8 && (memcpy(&eight, at, 8), !(eight & 0x8080808080808080))) {
      at += 8;
      continue;
    }
    uint8_t first = *at++;
    if (first < 0x80) continue;
    int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more) return 0;
    /* The second byte excludes overlong forms, halves of surrogate pairs, and code points beyond U+10FFFF. */
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80, high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (*at < low || *at > high) return 0;
    for (at++; --more; at++)
      if ((*at & 0xC0) != 0x80) return 0;
  }
  return 1;
}

static int read_text(reader *r, const step *s) {
  int64_t length = s->size, place;
  if (s->kind != FIXED) {
    if (!read_length(r, s, &length)) return 0;
    if (length < 0) return fail(r, s, NEGATIVE);
  }
  const uint8_t *text = r->at;
  if (!pass_bytes(r, s, length, 1)) return 0;
  if (s->target < 0) return 1;
  if (s->kind == STRING && !is_utf8(text, r->at)) return fail(r, s, NO_UTF8);
  return take_place(r, s, &place) && (append_bytes(&r->to, s->target, place, text, length) || fail(r, s, NO_ROOM));
}

static int read_enum(reader *r, const step *s) {
  int64_t index = 0, place;
  if (!read_length(r, s, &index)) return 0;
  if (index < 0 || index >= s->size) return fail(r, s, NO_SYMBOL);
  if (s->target < 0) return 1;
  const symbol *found = s->symbols + index;
  return take_place(r, s, &place) && (append_bytes(&r->to, s->target, place, found->text, found->length) || fail(r, s, NO_ROOM));
}

/* Whether no number is NaN or infinite: these have an exponent of ones only. The loops have no branch, so that the compiler makes
 * vector instructions of them. */
static int all_finite(const char *numbers, int64_t count, int64_t kind) {
  int found = 0;
  if (kind == FLOAT)
    for (const uint32_t *each = (const uint32_t *)numbers, *end = each + count; each < end; each++)
      found |= (*each & 0x7F800000) == 0x7F800000;
  else
    for (const uint64_t *each = (const uint64_t *)numbers, *end = each + count; each < end; each++)
      found |= (*each & 0x7FF0000000000000) == 0x7FF0000000000000;
  return !found;
}

/* Items that have the same bytes in the column as in the record, as in most vectors. Their finiteness is found while they are in the
 * cache: a pass over all columns later would read them from memory again. */
static int read_vector(reader *r, const step *item, int64_t count) {
  const node *n = r->to.nodes + item->target;
  int64_t size = item->kind == FLOAT ? sizeof(float) : sizeof(double), place = r->to.counts[item->target];
  if (!pass_bytes(r, item, count, size)) return 0;
  if (count > n->capacity - place) return fail(r, item, NO_ROOM);
  char *to = n->cells + place * size;
  memcpy(to, r->at - count * size, (size_t)(count * size));
  r->to.counts[item->target] += count;
  int64_t *finite = r->finite + item->target;
  if (*finite != NOT_FINITE) *finite = all_finite(to, count, item->kind) ? FINITE : NOT_FINITE;
  return 1;
}

/* The values of a map, with their keys. */
static int read_entries(reader *r, const step *s, int64_t count) {
  const step *values = r->steps + s->first;
  int64_t keys = s->members - 1, likely = 0; /* the wanted keys, and the one that probably comes next */
  for (; count; count--) {
    int64_t length = 0;
    if (!read_length(r, s, &length)) return 0;
    if (length < 0) return fail(r, s, NEGATIVE);
    if (!pass_bytes(r, s, length, 1)) return 0;
    const char *key = (const char *)r->at - length;
    if (!is_utf8((const uint8_t *)key, r->at)) return fail(r, s, NO_UTF8); /* as in fastavro */
    const step *value = values;
    for (int64_t tried = 0; tried < keys; tried++, likely++) {
      if (likely >= keys) likely = 0;
      if (s->symbols[likely].length != length || memcmp(s->symbols[likely].text, key, (size_t)length)) continue;
      value = values + 1 + likely++;
      /* The node of the map has one value more than the nodes of the keys that haven't come yet. */
      if (r->to.counts[value->target] == r->to.counts[s->target]) return fail(r, value, DOUBLED_KEY);
      break;
    }
    if (!read_value(r, value)) return 0;
  }
  return 1;
}

static int read_items(reader *r, const step *s, int64_t count) {
  if (s->kind == MAP) return read_entries(r, s, count);
  const step *item = r->steps + s->first;
  if (item->kind == PASS) return pass_bytes(r, s, count, item->size);
  int is_real = item->kind == FLOAT || item->kind == DOUBLE;
  if (is_real && item->target >= 0 && r->to.nodes[item->target].kind == item->kind && !r->to.nodes[item->target].valid)
    return read_vector(r, item, count);
  for (; count; count--)
    if (!read_value(r, item)) return 0;
  return 1;
}

/* Null for each wanted key that the map doesn't have. */
static int append_missing(reader *r, const step *s) {
  for (const step *value = r->steps + s->first + 1, *end = value + s->members - 1; value < end; value++)
    if (r->to.counts[value->target] < r->to.counts[s->target] && !append_null(&r->to, value->target)) return fail(r, s, NO_ROOM);
  return 1;
}

/* Reads an array or a map, in blocks. A negative number of items is followed by the block's size in bytes. */
static int read_blocks(reader *r, const step *s) {
  int64_t items = 0, count = 0, size = 0, place = 0;
  if (s->target >= 0 && !take_place(r, s, &place)) return 0;
  for (;;) {
    if (!read_length(r, s, &count)) return 0;
    if (!count) break;
    int has_size = count < 0;
    if (has_size) {
      if (!read_length(r, s, &size)) return 0;
      count = -count;
    }
    const uint8_t *begin = r->at;
    if (!read_items(r, s, count)) return 0;
    if (has_size && r->at - begin != size) return fail(r, s, WRONG_SIZE);
    items += count;
  }
  if (s->target < 0) return 1;
  if (s->kind == MAP) return append_missing(r, s);
  r->to.nodes[s->target].lengths[place] = items;
  return 1;
}

static int read_record(reader *r, const step *s) {
  int64_t place;
  if (s->target >= 0 && !take_place(r, s, &place)) return 0;
  for (const step *member = r->steps + s->first, *end = member + s->members; member < end; member++)
    if (!read_value(r, member)) return 0;
  return 1;
}

/* Of a wanted union, values of some types go to its node. The others are refused, except for null, which has no bytes. */
static int read_union(reader *r, const step *s) {
  int64_t index = 0;
  if (!read_length(r, s, &index)) return 0;
  if (index < 0 || index >= s->members) return fail(r, s, NO_BRANCH);
  const step *branch = r->steps + s->first + index;
  if (s->target < 0 || branch->target >= 0) return read_value(r, branch);
  if (branch->kind != PASS || branch->size) return fail(r, s, TYPE_REFUSED);
  if (!r->to.nodes[s->target].is_nullable) return fail(r, s, NULL_REFUSED);
  return append_null(&r->to, s->target) || fail(r, s, NO_ROOM);
}

static int read_value(reader *r, const step *s) {
  switch (s->kind) {
  case PASS: return pass_bytes(r, s, 1, s->size);
  case STRING:
  case BYTES:
  case FIXED: return read_text(r, s);
  case ENUM: return read_enum(r, s);
  case ARRAY:
  case MAP: return read_blocks(r, s);
  case RECORD: return read_record(r, s);
  case UNION: return read_union(r, s);
  }
  return read_number(r, s);
}

/* Reads `count` values from `text`, and appends those that are records of the schema to the columns of `nodes`. `faults` gets the
 * fault of each value (`FINE`: none), and behind these, for each value, the step of the fault or the number of left-over bytes.
 * `counters` has five numbers for each node: appended values and bytes, room for both again, and the finiteness. They are zeros at
 * the first call for these columns; later calls append more. */
void avro_columns(const node *nodes, int64_t node_count, int64_t *counters, const step *steps, const char *head, const char *text,
                  const int64_t *starts, const int64_t *lengths, int64_t count, int64_t *faults) {
  reader r = {steps, {nodes, counters, counters + node_count}, counters + 4 * node_count, NULL, NULL, FINE, steps};
  int64_t *before = counters + 2 * node_count, *where = faults + count;
  size_t bytes = 2 * (size_t)node_count * sizeof *counters;
  for (int64_t i = 0; i < count; i++) {
    const char *value = text + starts[i];
    where[i] = 0;
    if (lengths[i] < HEAD || memcmp(value, head, HEAD)) {
      faults[i] = OTHER_SCHEMA;
      continue;
    }
    memcpy(before, counters, bytes);
    r.at = (const uint8_t *)value + HEAD;
    r.end = (const uint8_t *)value + lengths[i];
    r.fault = FINE;
    if (!read_value(&r, steps)) where[i] = r.where - steps;
    else if ((where[i] = r.end - r.at)) r.fault = LEFT_OVER;
    if ((faults[i] = r.fault)) memcpy(counters, before, bytes);
  }
}
