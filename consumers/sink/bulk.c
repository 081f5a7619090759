/* Produces many records in one call, and notes records that can't be delivered; `bulk.py` calls this.
 *
 * librdkafka has a call for many records without headers, and a call for one record with headers. This uses only public functions
 * of its rdkafka.h. It gets them as pointers, so it needs no linking and no header of librdkafka to compile. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { /* rd_kafka_vu_t: one part of a record */
  int kind;      /* rd_kafka_vtype_t */
  union {
    void *topic;
    int flags;
    void *headers;
    struct {
      const char *bytes;
      size_t length;
    } memory;
    char padding[64];
  };
} part;

enum { TOPIC = 2, VALUE = 4, KEY = 5, FLAGS = 7, HEADERS = 10 };
enum { COPY = 2 };
enum { ANY_PARTITION = -1 }; /* the partitioner chooses */
enum { FULL = -184 };        /* RD_KAFKA_RESP_ERR__QUEUE_FULL */
enum { AT_ONCE = 128 };      /* records of one call; they fit into the processor's nearest cache */

typedef struct { /* rd_kafka_message_t */
  int error;
  void *topic;
  int32_t partition;
  const char *value;
  size_t value_length;
  const char *key;
  size_t key_length;
  int64_t offset;
  void *its_own;
} message;

typedef struct {
  int (*produce_batch)(void *topic, int32_t partition, int flags, message *records, int count); /* how many it took */
  void *(*produce)(void *client, const part *parts, size_t count); /* an error, or NULL */
  int (*code)(const void *error);
  void (*destroy)(void *error);
  void *(*new_headers)(size_t expected);
  int (*add_header)(void *headers, const char *name, ptrdiff_t name_length, const void *value, ptrdiff_t value_length);
  void (*drop_headers)(void *headers);
} library;

typedef struct { /* strings: one begins at bytes[starts[row]]; the length -1 means null */
  const char *bytes;
  const int64_t *starts, *lengths;
} column;

static int is_among(const column *names, int64_t count, const char *name, int32_t length) {
  for (int64_t i = 0; i < count; i++)
    if (names->lengths[i] == length && !memcmp(names->bytes + names->starts[i], name, (size_t)length)) return 1;
  return 0;
}

/* The headers with one of the names, for librdkafka; NULL if there are none. `packed` is as in `RecordHeaders`: for each header the
 * lengths of name and value (-1: null), the name, the value. */
static void *headers_of(const library *lib, const char *packed, int64_t length, const column *names, int64_t count) {
  void *headers = NULL;
  for (const char *at = packed, *end = packed + length; at < end;) {
    int32_t lengths[2];
    memcpy(lengths, at, sizeof lengths);
    const char *name = at + sizeof lengths, *value = name + lengths[0];
    at = value + (lengths[1] > 0 ? lengths[1] : 0);
    if (!is_among(names, count, name, lengths[0])) continue;
    if (!headers) headers = lib->new_headers(8);
    lib->add_header(headers, name, lengths[0], lengths[1] < 0 ? NULL : value, lengths[1] < 0 ? 0 : lengths[1]);
  }
  return headers;
}

/* Produces `count` records until librdkafka's queue is full. Returns how many it took. `refusal` gets the code of an error for
 * which it refused one, or 0: then it may have taken others behind it. `columns`: the values, the keys. */
int64_t bulk_produce(const library *lib, void *topic, int64_t count, const column *columns, int *refusal) {
  const column *values = columns, *keys = columns + 1;
  *refusal = 0;
  for (int64_t done = 0; done < count;) {
    message records[AT_ONCE] = {0};
    int size = count - done < AT_ONCE ? (int)(count - done) : AT_ONCE;
    for (int i = 0; i < size; i++) {
      int64_t row = done + i, key = keys->lengths[row];
      records[i].value = values->bytes + values->starts[row];
      records[i].value_length = (size_t)values->lengths[row];
      if (key < 0) continue;
      records[i].key = keys->bytes + keys->starts[row];
      records[i].key_length = (size_t)key;
    }
    int taken = lib->produce_batch(topic, ANY_PARTITION, COPY, records, size);
    done += taken;
    if (taken == size) continue;
    for (int i = 0; i < size && !*refusal; i++)
      if (records[i].error != FULL) *refusal = records[i].error;
    return done;
  }
  return count;
}

/* The same for records with headers, but it takes none behind one that it refuses. `columns` also has the packed headers of each
 * record, and the `wanted` names of the headers that are sent. */
int64_t bulk_produce_with_headers(const library *lib, void *client, void *topic, int64_t count, const column *columns, int64_t wanted,
                     int *refusal) {
  const column *values = columns, *keys = columns + 1, *packed = columns + 2, *names = columns + 3;
  *refusal = 0;
  for (int64_t row = 0; row < count; row++) {
    int has_key = keys->lengths[row] >= 0;
    void *headers =
        headers_of(lib, packed->bytes + packed->starts[row], packed->lengths[row], names, wanted);
    part parts[5] = {
        {.kind = TOPIC, .topic = topic},
        {.kind = FLAGS, .flags = COPY},
        {.kind = VALUE,
         .memory = {.bytes = values->bytes + values->starts[row], .length = (size_t)values->lengths[row]}},
        {.kind = KEY,
         .memory = {.bytes = has_key ? keys->bytes + keys->starts[row] : NULL,
                    .length = has_key ? (size_t)keys->lengths[row] : 0}},
        {.kind = HEADERS, .headers = headers},
    };
    void *error = lib->produce(client, parts, headers ? 5 : 4);
    if (error) {
      int code = lib->code(error);
      if (code != FULL) *refusal = code;
      lib->destroy(error);
      if (headers) lib->drop_headers(headers); /* they became librdkafka's only if it took the record */
      return row;
    }
  }
  return count;
}

typedef struct watch watch;
typedef int on_new(void *client, const void *settings, void *opaque, char *text, size_t size);
typedef int on_acknowledgement(void *client, message *, void *opaque);

struct watch { /* of a producer */
  int (*add_on_new)(void *settings, const char *name, on_new *, void *opaque);
  int (*add_on_acknowledgement)(void *client, const char *name, on_acknowledgement *, void *opaque);
  const char *(*topic_name)(const void *topic);
  int attached; /* 1: it gets this producer's records */
  int noted; /* 1 from when a thread writes the two below */
  int error; /* of the first record that can't be delivered; 0: none */
  char topic[256]; /* of this record; a name has at most 249 bytes */
};

/* librdkafka calls this for each record that was delivered, or can't be, in any of its threads. */
static int note(void *client, message *m, void *opaque) {
  watch *w = opaque;
  int unnoted = 0;
  (void)client;
  if (!m->error || !__atomic_compare_exchange_n(&w->noted, &unnoted, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return 0;
  if (m->topic) strncpy(w->topic, w->topic_name(m->topic), sizeof w->topic - 1);
  __atomic_store_n(&w->error, m->error, __ATOMIC_RELEASE); /* last: who sees the error may read the topic */
  return 0;
}

static int watch_client(void *client, const void *settings, void *opaque, char *text, size_t size) {
  watch *w = opaque;
  (void)settings, (void)text, (void)size;
  int refused = w->add_on_acknowledgement(client, "millstream", note, w);
  w->attached = !refused;
  return refused;
}

static watch *next;

/* Sets the watch of the next producer that has this library as a plugin. */
void bulk_watch(watch *w) { next = w; }

/* librdkafka calls this when a client's settings name this library as a plugin. */
int conf_init(void *settings, void **opaque, char *text, size_t size) {
  (void)opaque, (void)text, (void)size;
  if (!next) return -1; /* RD_KAFKA_RESP_ERR_UNKNOWN: somebody else loads it */
  return next->add_on_new(settings, "millstream", watch_client, next);
}
