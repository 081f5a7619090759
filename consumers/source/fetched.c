/* Records that librdkafka has fetched, copied into columns; `fetched.py` calls this and says what comes of it.
 *
 * confluent-kafka makes an object of each record, and of its key, value and topic: 1 us of CPU, under the interpreter's lock.
 * Used here is what librdkafka's rdkafka.h offers to everyone, and two functions of confluent-kafka. All come as pointers, from
 * the libraries that are loaded, so that nothing is linked: any C compiler makes this file, without a header of anybody's. */

#include <stddef.h>
#include <stdint.h>
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
  int (*headers)(const message *, const void **headers);
  int (*header)(const void *headers, size_t index, const char **name, const char **value, size_t *length);
  void (*destroy)(message *);
} library;

/* Up to `size` messages, as `Consumer.consume` takes them: it gives up the interpreter's lock and takes it again by these two
 * functions, for what is called back meanwhile, rebalances among it, asks for what they keep. With the lock held, `client` being
 * the consumer's object, `handle` librdkafka's. Returns how many; -1 where a Python exception is set. */
int64_t fetched_consume(const library *lib, void *client, void *handle, int milliseconds, message **to, int64_t size) {
  void *state[16] = {0}; /* theirs is of three */
  void *queue = lib->queue_of(handle);
  lib->begin(client, state);
  int64_t count = lib->consume(queue, milliseconds, to, (size_t)size);
  int good = lib->end(client, state);
  lib->drop_queue(queue);
  if (good) return count < 0 ? 0 : count;
  for (int64_t i = 0; i < count; i++) lib->destroy(to[i]);
  return -1;
}

typedef struct { /* one number a record */
  int64_t *place, *offset, *timestamp, *timestamp_type, *error;
  int64_t *value_length, *key_length; /* -1: null */
  int64_t *header_bytes;
} columns;

typedef struct { /* of all records */
  int64_t partitions, errors, value_bytes, null_values, key_bytes, null_keys, header_bytes;
} sums;

typedef struct {
  void *topic;
  int64_t number;
} partition;

/* Where the message's partition stands in `found`, which gets it where it is new. Messages come in runs of one partition. */
static int64_t place_of(const message *m, partition *found, int64_t *count, int64_t last) {
  if (last < *count && found[last].topic == m->topic && found[last].number == m->partition) return last;
  for (int64_t place = 0; place < *count; place++)
    if (found[place].topic == m->topic && found[place].number == m->partition) return place;
  found[*count].topic = m->topic;
  found[*count].number = m->partition;
  return (*count)++;
}

/* Writes a message's headers, each its name's length, its value's (-1: null), both bytes; or only says how long that is. */
static int64_t headers_of(const library *lib, const message *m, char *to) {
  const void *headers;
  const char *name, *value;
  size_t length;
  int64_t size = 0;
  if (lib->headers(m, &headers) != 0) return 0;
  for (size_t i = 0; lib->header(headers, i, &name, &value, &length) == 0; i++) {
    int64_t lengths[2] = {(int64_t)strlen(name), value ? (int64_t)length : -1};
    if (to) {
      char *at = to + size;
      memcpy(at, lengths, sizeof lengths);
      memcpy(at + sizeof lengths, name, (size_t)lengths[0]);
      if (value) memcpy(at + sizeof lengths + lengths[0], value, length);
    }
    size += (int64_t)sizeof lengths + lengths[0] + (value ? lengths[1] : 0);
  }
  return size;
}

/* What `count` messages say in numbers; `found` has room for as many partitions. */
void fetched_describe(const library *lib, message *const *messages, int64_t count, const columns *to, partition *found,
                      sums *sum) {
  int64_t place = 0;
  memset(sum, 0, sizeof *sum);
  for (int64_t i = 0; i < count; i++) {
    const message *m = messages[i];
    int type = 0;
    to->place[i] = place = place_of(m, found, &sum->partitions, place);
    to->offset[i] = m->offset;
    to->timestamp[i] = lib->timestamp(m, &type);
    to->timestamp_type[i] = type;
    to->error[i] = m->error;
    to->value_length[i] = m->value ? (int64_t)m->value_length : -1;
    to->key_length[i] = m->key ? (int64_t)m->key_length : -1;
    to->header_bytes[i] = m->error ? 0 : headers_of(lib, m, NULL);
    sum->errors += m->error != 0;
    if (m->value) sum->value_bytes += to->value_length[i];
    else sum->null_values++;
    if (m->key) sum->key_bytes += to->key_length[i];
    else sum->null_keys++;
    sum->header_bytes += to->header_bytes[i];
  }
}

/* Copies values, keys and headers end to end, and gives the messages back to librdkafka. */
void fetched_take(const library *lib, message *const *messages, int64_t count, const columns *of, char *values, char *keys,
                  char *headers) {
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
    if (of->header_bytes[i]) headers += headers_of(lib, m, headers);
    lib->destroy(m);
  }
}
