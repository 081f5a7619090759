/* Reads the syntax of JSON: where texts and numbers end, and what stands between them. `json_columns.c` uses it.
 *
 * A function gets the place to read from, and returns the place behind what it has read; NULL if it is no JSON. Zeros must stand
 * behind the text, at least `PADDING` of them. A zero is no part of any value, so no function reads on behind it. */

#include <stdint.h>
#include <string.h>

enum { PADDING = 32 };

#define EACH(byte) (0x0101010101010101ull * (byte))

static inline uint64_t eight_bytes(const char *at) { /* the first one lowest */
  uint64_t bytes;
  memcpy(&bytes, at, sizeof bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  bytes = __builtin_bswap64(bytes);
#endif
  return bytes;
}

static inline const char *after_space(const char *at) {
  if ((uint8_t)*at > ' ') return at;
  while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
  return at;
}

/* The first `"`, `\` or control character from here on. */
static inline const char *special_from(const char *at) {
  for (;; at += 8) {
    uint64_t bytes = eight_bytes(at), quotes = bytes ^ EACH('"'), escapes = bytes ^ EACH('\\');
    /* The highest bit of each byte that is found. Above the first one, other bytes may be marked as well. */
    uint64_t found = (((quotes - EACH(1)) & ~quotes) | ((escapes - EACH(1)) & ~escapes) | ((bytes - EACH(' ')) & ~bytes)) &
                     EACH(0x80);
    if (found) return at + (__builtin_ctzll(found) >> 3);
  }
}

/* The first character from here on that is no digit. */
static inline const char *after_digits(const char *at) {
  for (;; at += 8) {
    uint64_t bytes = eight_bytes(at);
    /* Zero for a digit. Above the first other byte, the sum may have a carry. */
    uint64_t others = ((bytes & EACH(0xF0)) ^ EACH('0')) | (((bytes + EACH(6)) & EACH(0xF0)) ^ EACH('0'));
    if (others) return at + (__builtin_ctzll(others) >> 3);
  }
}

/* The number of one to eight digits. */
static inline uint64_t number_of(const char *at, int64_t digits) {
  uint64_t sum = eight_bytes(at) << (64 - 8 * digits) & EACH(0x0F);
  sum = (sum * (1 + (10 << 8))) >> 8 & 0x00FF00FF00FF00FFull;       /* pairs of digits */
  sum = (sum * (1 + (100 << 16))) >> 16 & 0x0000FFFF0000FFFFull;    /* fours */
  return (sum * (1 + (10000ull << 32))) >> 32;
}

/* The closing quote of a text, from behind its opening quote. */
static inline const char *end_of_text(const char *at, int *has_escapes) {
  *has_escapes = 0;
  while (*(at = special_from(at)) == '\\') {
    *has_escapes = 1;
    at += 2;
  }
  return *at == '"' ? at : NULL;
}

static inline int is_ascii(const char *at, const char *end) {
  uint64_t bits = 0;
  for (; end - at >= 8; at += 8) bits |= eight_bytes(at);
  for (; at < end; at++) bits |= (uint64_t)(uint8_t)*at;
  return !(bits & EACH(0x80));
}

/* From the first of one or more digits. */
static inline const char *after_some_digits(const char *at) {
  const char *end = after_digits(at);
  return end == at ? NULL : end;
}

static inline const char *after_number(const char *at) {
  at += *at == '-';
  at = *at == '0' ? at + 1 : after_some_digits(at);
  if (at && *at == '.') at = after_some_digits(at + 1);
  if (!at || (*at != 'e' && *at != 'E')) return at;
  at++;
  at += *at == '+' || *at == '-';
  return after_some_digits(at);
}

static inline const char *after_word(const char *at, const char *word, size_t length) {
  return memcmp(at, word, length) ? NULL : at + length;
}
