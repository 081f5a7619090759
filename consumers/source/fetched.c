/* Copies records that librdkafka has fetched into columns. `fetched.py` calls this and documents the result.
 *
 * confluent-kafka creates Python objects for each record, its key, value and topic. That costs 1 us of CPU per record, and holds
 * the GIL. This file uses public functions of librdkafka's rdkafka.h and two functions of confluent-kafka. `fetched.py` takes
 * their addresses from the loaded libraries. So nothing is linked, and any C compiler compiles this file without other headers. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { /* rd_kafka_message_t */
  int error;
  void *topic;
  int32_t partition;
  char *value;
  size_t value_length;
  char *key;
  size_t key_length;
  int64_t offset;
  void *its_own;
} message;

typedef struct {
  void (*begin)(void *client, void *state); /* CallState_begin of confluent-kafka, and its CallState_end */
  int (*end)(void *client, void *state);
  void *(*queue_of)(void *handle);
  void (*drop_queue)(void *queue);
  ptrdiff_t (*consume)(void *queue, int milliseconds, message **to, size_t size);
  int64_t (*timestamp)(const message *, int *type);
  int32_t (*leader_epoch)(const message *);
  int (*detach_headers)(message *, void **headers);
  int (*header)(const void *headers, size_t index, const char **name, const char **value, size_t *length);
  void (*destroy_headers)(void *headers);
  void (*destroy)(message *);
} library;

/* Reads up to `size` messages, like `Consumer.consume`. That method releases and takes the GIL with CallState_begin and
 * CallState_end, and so does this function: callbacks during the call, such as rebalances, need the state that these two store.
 * The caller holds the GIL. `client` is the consumer's Python object, `handle` is librdkafka's. Returns the number of messages,
 * or -1 if a Python exception is set. */
int64_t fetched_consume(const library *lib, void *client, void *handle, int milliseconds, message **to, int64_t size) {
  void *state[16] = {0}; /* confluent-kafka's struct has three pointers */
  void *queue = lib->queue_of(handle);
  lib->begin(client, state);
  int64_t count = lib->consume(queue, milliseconds, to, (size_t)size);
  int good = lib->end(client, state);
  lib->drop_queue(queue);
  if (good) return count < 0 ? 0 : count;
  for (int64_t i = 0; i < count; i++) lib->destroy(to[i]);
  return -1;
}

enum { /* columns with a number per record, one column after the other */
  PLACE,
  OFFSET,
  TIMESTAMP,
  TIMESTAMP_TYPE,
  ERROR,
  VALUE_START,
  VALUE_LENGTH, /* -1: null */
  KEY_START,
  KEY_LENGTH, /* -1: null */
  HEADER_BYTES,
  BYTES /* of key, value and headers */
};

typedef struct { /* totals over all records */
  int64_t partitions, errors, value_bytes, null_values, key_bytes, null_keys, header_bytes;
  char *headers; /* `fetched_take` copies and frees them */
} sums;

typedef struct {
  void *topic;
  int64_t number;
} partition;

/* The index of the message's partition in `found`; a new partition is added. `last` is tried first, as messages come in runs. */
static int64_t place_of(const message *m, partition *found, int64_t *count, int64_t last) {
  if (last < *count && found[last].topic == m->topic && found[last].number == m->partition) return last;
  for (int64_t place = 0; place < *count; place++)
    if (found[place].topic == m->topic && found[place].number == m->partition) return place;
  found[*count].topic = m->topic;
  found[*count].number = m->partition;
  return (*count)++;
}

typedef struct { /* a buffer that grows */
  char *start;
  size_t length, room;
} growing;

static char *more_of(growing *bytes, size_t by) {
  if (bytes->room - bytes->length < by) {
    size_t room = 2 * bytes->room + by;
    char *start = realloc(bytes->start, room);
    if (!start) return NULL;
    bytes->start = start;
    bytes->room = room;
  }
  bytes->length += by;
  return bytes->start + bytes->length - by;
}

/* Whether the byte behind a message's value says that it has no headers. librdkafka takes 0.1 us to say so, because it prepares to
 * parse them. It leaves values where they are in the broker's answer, and there the number of headers follows: in record batches of
 * version 2 (https://kafka.apache.org/documentation/#recordbatch), the only ones with headers and with a leader epoch. A value
 * without bytes is elsewhere. */
static int has_none(const library *lib, const message *m) {
  return m->value && m->value_length && lib->leader_epoch(m) >= 0 && !m->value[m->value_length];
}

/* Appends a message's headers to `to`. Each header is the length of its name, the length of its value (-1: null), the name's bytes
 * and the value's bytes. librdkafka parses headers at the first access, and then a header of two bytes takes a hundred. So this
 * frees the parsed headers after each message. Returns the number of bytes added, or -1 if there is not enough memory. */
static int64_t move_headers(const library *lib, message *m, growing *to) {
  void *headers;
  const char *name, *value;
  size_t length, before = to->length;
  if (lib->detach_headers(m, &headers) != 0) return 0;
  for (size_t i = 0; lib->header(headers, i, &name, &value, &length) == 0; i++) {
    int32_t lengths[2] = {(int32_t)strlen(name), value ? (int32_t)length : -1}; /* a record is shorter than 2 GiB */
    char *at = more_of(to, sizeof lengths + (size_t)lengths[0] + (value ? length : 0));
    if (!at) {
      lib->destroy_headers(headers);
      return -1;
    }
    memcpy(at, lengths, sizeof lengths);
    memcpy(at + sizeof lengths, name, (size_t)lengths[0]);
    if (value) memcpy(at + sizeof lengths + lengths[0], value, length);
  }
  lib->destroy_headers(headers);
  return (int64_t)(to->length - before);
}

/* Fills the columns of numbers and the totals of `count` messages. `found` has room for `count` partitions. Returns 0. If there is
 * not enough memory, it gives the messages back to librdkafka and returns -1. */
int fetched_describe(const library *lib, message *const *messages, int64_t count, int64_t *numbers, partition *found, sums *sum) {
  int64_t place = 0;
  int in_place = 1; /* whether values are where `has_none` expects them. The first message shows it */
  growing headers = {NULL, 0, 0};
  memset(sum, 0, sizeof *sum);
  for (int64_t i = 0; i < count; i++) {
    message *m = messages[i];
    int64_t *to = numbers + i; /* its number in the first column; the next column's is `count` further */
    int64_t value = m->value ? (int64_t)m->value_length : 0, key = m->key ? (int64_t)m->key_length : 0;
    int type = 0, none = !m->error && has_none(lib, m);
    int64_t of_headers = m->error || (none && in_place && i) ? 0 : move_headers(lib, m, &headers);
    if (of_headers < 0) {
      for (i = 0; i < count; i++) lib->destroy(messages[i]);
      free(headers.start);
      return -1;
    }
    if (none && of_headers) in_place = 0;
    to[PLACE * count] = place = place_of(m, found, &sum->partitions, place);
    to[OFFSET * count] = m->offset;
    to[TIMESTAMP * count] = lib->timestamp(m, &type);
    to[TIMESTAMP_TYPE * count] = type;
    to[ERROR * count] = m->error;
    to[VALUE_START * count] = sum->value_bytes;
    to[VALUE_LENGTH * count] = m->value ? value : -1;
    to[KEY_START * count] = sum->key_bytes;
    to[KEY_LENGTH * count] = m->key ? key : -1;
    to[HEADER_BYTES * count] = of_headers;
    to[BYTES * count] = value + key + of_headers;
    sum->errors += m->error != 0;
    sum->value_bytes += value;
    sum->null_values += !m->value;
    sum->key_bytes += key;
    sum->null_keys += !m->key;
  }
  sum->headers = headers.start;
  sum->header_bytes = (int64_t)headers.length;
  return 0;
}

/* Copies the values, keys and headers end to end into three buffers, and gives the messages back to librdkafka. */
void fetched_take(const library *lib, message *const *messages, int64_t count, sums *sum, char *values, char *keys,
                  char *headers) {
  if (sum->header_bytes) memcpy(headers, sum->headers, (size_t)sum->header_bytes);
  free(sum->headers);
  for (int64_t i = 0; i < count; i++) {
    message *m = messages[i];
    if (m->value) {
      memcpy(values, m->value, m->value_length);
      values += m->value_length;
    }
    if (m->key) {
      memcpy(keys, m->key, m->key_length);
      keys += m->key_length;
    }
    lib->destroy(m);
  }
}
