/* Reads JSON events, and copies the wanted values into columns. `columns.py` calls this.
 *
 * Each text is read once, from its start to its end. Values that nobody wants are not stored: only their syntax is checked, as
 * msgspec does. yyjson reads the wanted texts that have escapes or characters beyond ASCII, and long numbers. `columns.py` takes
 * the addresses of its functions from the loaded library. So nothing is linked, and any C compiler can compile this file without
 * other headers. If a number has 769 digits or more, its last bit may differ from msgspec's result, because yyjson ignores further
 * digits. */

#include "../columns.h"
#include "json_text.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct { /* yyjson_val */
  uint64_t tag; /* the kind in the lowest byte; above it, the length of a text */
  union {
    uint64_t natural;
    int64_t integer;
    double real;
    const char *text;
  } is;
} value;

enum { /* kinds of value */
  JSON_NULL = 2, JSON_FALSE = 3, JSON_TRUE = 11,
  JSON_NATURAL = 4, JSON_NEGATIVE = 12, JSON_REAL = 20,
  JSON_TEXT = 5
};
_Static_assert(sizeof(value) == 16, "expected pointers of 8 bytes");

typedef struct {
  void *(*read)(const char *text, size_t length, uint32_t flags, const void *allocator, void *error); /* yyjson_read_opts */
  int (*pool)(void *allocator, void *memory, size_t size);                                            /* yyjson_alc_pool_init */
  const char *(*number)(const char *text, value *to, uint32_t flags, const void *allocator, void *error); /* yyjson_read_number */
} library;

enum {
  WORDS = 3,       /* of 8 bytes: longer keys are not remembered */
  MOST_KEYS = 256, /* that are remembered */
  AHEAD = 3        /* keys with which a key is compared: some of the expected keys may be absent */
};

/* A key of an earlier event. Most events have the same keys in the same order. So each key is first compared with the one that
 * came at this place before, which takes less time than to find its end and its field. */
typedef struct key {
  uint64_t words[WORDS], masks[WORDS]; /* the bytes from its opening quote to its value, and which of them count */
  int64_t length;                      /* the number of these bytes */
  int64_t member;                      /* the index of the field's node; -1: nobody wants it */
  struct key *next, *inside;           /* the key behind it, and the first key in its value; `other`: none is known */
} key;

typedef struct {
  columns to;
  int64_t *seen; /* for each node, the number of the last record that had this field */
  int64_t records;
  const library *lib;
  char *memory; /* for yyjson */
  size_t size;
  key *keys; /* that are remembered; the first one stands for the event */
  int64_t key_count;
  key other; /* a key that is not remembered */
} state;

_Static_assert(MOST_KEYS * sizeof(key) + PADDING + 1024 <= 1 << 15, "columns.py reserves 32 kB");

/* For rare or long paths: inlined, their registers would be saved at each call of the short function around them. */
#define NOT_INLINE __attribute__((noinline))

enum { HEAD = 5 }; /* a zero byte and a schema ID, which Confluent's serializer for JSON Schema writes before the text */

enum { DEEPEST = 200 }; /* msgspec rejects values near Python's recursion limit, so this file skips all that may be so deep */

static int is_text(const value *v) { return (v->tag & 7) == JSON_TEXT; }

/* The index of the field with this name; -1 if there is none. */
static int64_t field_of(const state *s, const node *record, const char *name, int64_t length) {
  for (int64_t member = record->first; member < record->first + record->members; member++) {
    const node *m = s->to.nodes + member;
    if (m->name_length == length && !memcmp(m->name, name, (size_t)length)) return member;
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
    const char *point = fabs(number) < 0x1p53 ? "" : ".0";
    int length = snprintf(text, sizeof text, "%lld%s", (long long)number, point);
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
  }
  return 0; /* an array or a record, which this value is not */
}

/* Has yyjson read a text with its quotes: checks its UTF-8, and replaces its escapes. NULL: it is malformed. */
static const value *parsed(const state *s, const char *start, const char *end) {
  void *allocator[4]; /* yyjson_alc */
  s->lib->pool(allocator, s->memory, s->size);
  const value *const *document = s->lib->read(start, (size_t)(end - start), 0, allocator, NULL);
  return document ? *document : NULL;
}

static const char *read_text(const state *s, const char *at, value *v) {
  int has_escapes;
  const char *end = end_of_text(at + 1, &has_escapes);
  if (!end) return NULL;
  if (!has_escapes && is_ascii(at + 1, end)) {
    v->tag = (uint64_t)(end - at - 1) << 8 | JSON_TEXT;
    v->is.text = at + 1;
    return end + 1;
  }
  const value *text = parsed(s, at, end + 1);
  if (!text) return NULL;
  *v = *text;
  return end + 1;
}

/* Reads short numbers without an exponent itself, and leaves the others to yyjson. */
static const char *read_number(const state *s, const char *at, value *v) {
  static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
  static const uint64_t wholes[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  int is_negative = *at == '-';
  const char *start = at + is_negative, *dot = after_digits(start), *end = *dot == '.' ? after_digits(dot + 1) : dot;
  int64_t digits = dot - start, behind = end - dot - (*dot == '.');
  if (digits < 1 || digits > 16 || (*start == '0' && digits > 1) || *end == 'e' || *end == 'E' ||
      (*dot == '.' && (behind < 1 || behind > 8 || digits + behind > 15)))
    return s->lib->number(at, v, 0, NULL, NULL);
  uint64_t number = digits > 8 ? number_of(start, digits - 8) * wholes[8] + number_of(dot - 8, 8) : number_of(start, digits);
  if (*dot != '.') {
    v->tag = is_negative ? JSON_NEGATIVE : JSON_NATURAL;
    v->is.natural = is_negative ? -number : number;
    return end;
  }
  /* Both are exact, so the quotient is the nearest double. */
  double real = (double)(int64_t)(number * wholes[behind] + number_of(dot + 1, behind)) / powers[behind];
  v->tag = JSON_REAL;
  v->is.real = is_negative ? -real : real;
  return end;
}

static inline int is_at(const key *k, const char *at) {
  uint64_t differs = 0, word;
  for (int i = 0; i < WORDS; i++) {
    memcpy(&word, at + 8 * i, 8);
    differs |= (word & k->masks[i]) ^ k->words[i];
  }
  return !differs;
}

static void clear(state *s, key *k, int64_t member) {
  memset(k, 0, sizeof *k);
  k->member = member;
  k->next = k->inside = &s->other;
}

/* Notes a key, from its opening quote to the start of its value, if there is room for it. */
static key *noted(state *s, key **link, const char *at, const char *start, int64_t member) {
  if (link == &s->other.inside || s->key_count == MOST_KEYS || start - at > WORDS * 8) {
    s->other.member = member;
    return &s->other;
  }
  key *k = s->keys + s->key_count++;
  clear(s, k, member);
  k->length = start - at;
  memcpy(k->words, at, (size_t)k->length);
  memset(k->masks, 0xFF, (size_t)k->length);
  k->next = *link;
  return *link = k;
}

/* Reads a key that is not the expected one. */
static NOT_INLINE const char *read_other_key(state *s, const node *record, key **link, const char *at, key **found) {
  *found = *link;
  for (int tries = 1; tries < AHEAD; tries++) {
    *found = (*found)->next;
    if (is_at(*found, at)) return after_space(at + (*found)->length);
  }
  int has_escapes;
  const char *name = at + 1, *end = *at == '"' ? end_of_text(name, &has_escapes) : NULL;
  if (!end) return NULL;
  int64_t length = end - name;
  if (has_escapes) {
    const value *text = parsed(s, at, end + 1);
    if (!text) return NULL;
    name = text->is.text;
    length = (int64_t)(text->tag >> 8);
  }
  int64_t member = record ? field_of(s, record, name, length) : -1;
  const char *colon = after_space(end + 1);
  if (*colon != ':') return NULL;
  const char *start = after_space(colon + 1);
  *found = noted(s, link, at, start, member);
  return start;
}

/* Reads a key up to its value. `record`: whose fields are wanted; NULL: none are. `*link`: the expected key. */
static inline const char *read_key(state *s, const node *record, key **link, const char *at, key **found) {
  key *expected = *link;
  if (!is_at(expected, at)) return read_other_key(s, record, link, at, found);
  *found = expected;
  return after_space(at + expected->length);
}

static const char *skip(state *s, key *of, const char *at, int depth);

static const char *skip_text(const state *s, const char *at) {
  int has_escapes;
  const char *end = end_of_text(at + 1, &has_escapes);
  return end && (!has_escapes || parsed(s, at, end + 1)) ? end + 1 : NULL;
}

static NOT_INLINE const char *skip_items(state *s, key *of, const char *at, int depth) {
  at = after_space(at + 1);
  if (*at == ']') return at + 1;
  for (;; at = after_space(at + 1)) {
    if (!(at = skip(s, of, at, depth))) return NULL;
    at = after_space(at);
    if (*at == ']') return at + 1;
    if (*at != ',') return NULL;
  }
}

static NOT_INLINE const char *skip_members(state *s, key *of, const char *at, int depth) {
  key **link = &of->inside;
  key *k;
  at = after_space(at + 1);
  if (*at == '}') return at + 1;
  for (;; at = after_space(at + 1)) {
    if (!(at = read_key(s, NULL, link, at, &k)) || !(at = skip(s, k, at, depth))) return NULL;
    if (k != &s->other) link = &k->next;
    at = after_space(at);
    if (*at == '}') return at + 1;
    if (*at != ',') return NULL;
  }
}

/* The place behind a value that nobody wants; NULL if it is malformed, or its containers are more than `depth` deep. */
static const char *skip(state *s, key *of, const char *at, int depth) {
  switch (*at) {
  case '"': return skip_text(s, at);
  case '{': return depth ? skip_members(s, of, at, depth - 1) : NULL;
  case '[': return depth ? skip_items(s, of, at, depth - 1) : NULL;
  case 't': return after_word(at, "true", 4);
  case 'f': return after_word(at, "false", 5);
  case 'n': return after_word(at, "null", 4);
  }
  return after_number(at);
}

static const char *read_value(state *s, int64_t index, key *of, const char *at);

static NOT_INLINE const char *read_items(state *s, int64_t index, key *of, const char *at) {
  const node *n = s->to.nodes + index;
  int64_t count = 0, place = next_place(&s->to, index);
  if (place < 0) return NULL;
  at = after_space(at + 1);
  if (*at != ']')
    for (;; at = after_space(at + 1)) {
      if (!(at = read_value(s, n->first, of, at))) return NULL;
      count++;
      at = after_space(at);
      if (*at == ']') break;
      if (*at != ',') return NULL;
    }
  n->lengths[place] = count;
  return at + 1;
}

/* Appends the defaults of the fields that a record doesn't have. */
static int append_missing(state *s, const node *n, int64_t record) {
  for (int64_t member = n->first; member < n->first + n->members; member++) {
    const char *missing = s->to.nodes[member].missing;
    if (s->seen[member] != record && (!missing || !read_value(s, member, &s->other, missing))) return 0;
  }
  return 1;
}

static NOT_INLINE const char *read_members(state *s, int64_t index, key *of, const char *at) {
  const node *n = s->to.nodes + index;
  if (next_place(&s->to, index) < 0) return NULL;
  int64_t record = ++s->records, found = 0;
  key **link = &of->inside;
  key *k;
  at = after_space(at + 1);
  if (*at != '}')
    for (;; at = after_space(at + 1)) {
      if (!(at = read_key(s, n, link, at, &k))) return NULL;
      if (k != &s->other) link = &k->next;
      int64_t member = k->member;
      if (member < 0) at = skip(s, k, at, DEEPEST);
      else {
        if (s->seen[member] == record) return NULL; /* the field occurs twice */
        s->seen[member] = record;
        found++;
        at = read_value(s, member, k, at);
      }
      if (!at) return NULL;
      at = after_space(at);
      if (*at == '}') break;
      if (*at != ',') return NULL;
    }
  return found == n->members || append_missing(s, n, record) ? at + 1 : NULL;
}

/* Appends a value to a node. `of`: the key of the value, or of the array around it. */
static const char *read_value(state *s, int64_t index, key *of, const char *at) {
  value v;
  switch (*at) {
  case '{': return s->to.nodes[index].kind == RECORD ? read_members(s, index, of, at) : NULL;
  case '[': return s->to.nodes[index].kind == ARRAY ? read_items(s, index, of, at) : NULL;
  case '"': at = read_text(s, at, &v); break;
  case 't': at = after_word(at, "true", 4), v.tag = JSON_TRUE; break;
  case 'f': at = after_word(at, "false", 5), v.tag = JSON_FALSE; break;
  case 'n': at = after_word(at, "null", 4), v.tag = JSON_NULL; break;
  default: at = read_number(s, at, &v);
  }
  return at && append(s, index, &v) ? at : NULL;
}

/* Whether a text is an event, which then is appended. */
static int read_event(state *s, const char *at, const char *end) {
  at = after_space(at);
  return *at == '{' && (at = read_value(s, 0, s->keys, at)) && after_space(at) == end;
}

/* Reads `count` texts, which lie in `text`, and appends the events among them to the columns of `nodes`. Marks in `odd` the texts
 * that it skips: they aren't events, or `each.py` must read them. `counters` has five numbers for each node: values and bytes
 * appended, a copy of both, and `seen`. They are zeros at the first call for these columns; later calls append more, and only
 * `seen` must be zeros again. `memory` has room for the longest text twice, and for 32 kB more. */
void json_columns(const library *lib, const node *nodes, int64_t node_count, int64_t *counters, const char *text,
                  const int64_t *starts, const int64_t *lengths, int64_t count, char *memory, int64_t size, uint8_t *odd) {
  state s = {.to = {nodes, counters, counters + node_count}, .seen = counters + 4 * node_count, .lib = lib};
  int64_t *before = counters + 2 * node_count;
  size_t bytes = 2 * (size_t)node_count * sizeof *counters;
  char *copy = memory + MOST_KEYS * sizeof(key);
  s.keys = (key *)memory;
  s.key_count = 1;
  clear(&s, s.keys, 0);
  clear(&s, &s.other, -1);
  s.other.words[0] = 1; /* no text has it, because no byte counts */
  for (int64_t i = 0; i < count; i++) {
    int64_t head = lengths[i] >= HEAD && !text[starts[i]] ? HEAD : 0, length = lengths[i] - head;
    memcpy(copy, text + starts[i] + head, (size_t)length);
    memset(copy + length, 0, PADDING);
    s.memory = copy + length + PADDING;
    s.size = (size_t)(memory + size - s.memory);
    memcpy(before, counters, bytes);
    odd[i] = !read_event(&s, copy, copy + length);
    if (odd[i]) memcpy(counters, before, bytes);
  }
}
