/* Produces many records with headers in one call; `bulk.py` calls this.
 *
 * librdkafka has a call for many records without headers, and a call for one record with headers. This uses only public functions
 * of its rdkafka.h. It gets them as pointers, so it needs no linking and no header of librdkafka to compile. */

#include <stddef.h>
#include <stdint.h>

typedef struct { /* rd_kafka_vu_t: one part of a record */
  int kind;      /* rd_kafka_vtype_t */
  union {
    void *topic;
    int flags;
    struct {
      const char *bytes;
      size_t length;
    } memory;
    struct {
      const char *name, *value;
      ptrdiff_t length;
    } header;
    char padding[64];
  };
} part;

enum { TOPIC = 2, VALUE = 4, KEY = 5, FLAGS = 7, HEADER = 9 };
enum { COPY = 2 };

typedef struct {
  void *(*produce)(void *client, const part *parts, size_t count); /* an error, or NULL */
  int (*code)(const void *error);
  void (*destroy)(void *error);
} library;

typedef struct { /* one string per record, which begins at bytes[starts[record]]; the length -1 means null */
  const char *bytes;
  const int64_t *starts, *lengths;
} column;

/* Produces `count` records, each with a value, a key, and one header of each name, until librdkafka refuses one. Returns how many
 * it took. `refusal` gets the error code, or 0. */
int64_t bulk_produce(const library *lib, void *client, void *topic, int64_t count, const column *columns,
                     const char *const *names, int64_t headers, int *refusal) {
  part parts[4 + headers];
  parts[0] = (part){.kind = TOPIC, .topic = topic};
  parts[1] = (part){.kind = FLAGS, .flags = COPY};
  *refusal = 0;
  for (int64_t row = 0; row < count; row++) {
    for (int64_t i = 0; i < 2 + headers; i++) {
      const char *bytes = columns[i].lengths[row] < 0 ? NULL : columns[i].bytes + columns[i].starts[row];
      int64_t length = bytes ? columns[i].lengths[row] : 0;
      part *to = parts + 2 + i;
      if (i < 2) {
        to->kind = i ? KEY : VALUE;
        to->memory.bytes = bytes;
        to->memory.length = (size_t)length;
      } else {
        to->kind = HEADER;
        to->header.name = names[i - 2];
        to->header.value = bytes;
        to->header.length = (ptrdiff_t)length;
      }
    }
    void *error = lib->produce(client, parts, (size_t)(4 + headers));
    if (error) {
      *refusal = lib->code(error);
      lib->destroy(error);
      return row;
    }
  }
  return count;
}
