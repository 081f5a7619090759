/* Records with headers, handed to librdkafka many a call; `bulk.py` calls this.
 *
 * librdkafka has a call for many records without headers, and one for a record with them. Used is what its rdkafka.h offers to
 * everyone. The functions come as pointers, so that nothing is linked: any C compiler makes this file, without a header of
 * anybody's. */

#include <stddef.h>
#include <stdint.h>

typedef struct { /* rd_kafka_vu_t: one thing that a record has */
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

typedef struct { /* one string a record: bytes[starts[record]] and on, -1 is the length of one that is null */
  const char *bytes;
  const int64_t *starts, *lengths;
} column;

/* Hands over `count` records, each with its value, its key, and one header of each name, until one is refused. Returns how many
 * were taken; `refusal` gets the error's code, 0 for none. */
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
