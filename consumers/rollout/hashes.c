/* Hashes many keys per call; `hashes.py` calls this, and has the same in Python. */

#include <stdint.h>

/* Four bytes, the lowest first: on every machine. */
static uint32_t four(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The last step of MurmurHash3. */
static uint32_t mixed(uint32_t hash) {
  hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
  hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
  return hash ^ hash >> 16;
}

/* Key n has lengths[n] bytes, from bytes[starts[n]] on. `crc` is the CRC-32 of what stands before each key. `tables` are those of
 * slicing by 8: tables[256 * i + byte] is the effect of a byte that i bytes follow. Writes a hash per key.
 * Returns the number of keys hashed; if it is less than `count`, the next key lies outside of the `size` bytes. */
int64_t hash_keys(const uint8_t *bytes, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                  const uint32_t *tables, uint32_t crc, uint32_t *hashes) {
  for (int64_t n = 0; n < count; n++) {
    int64_t left = lengths[n];
    if (starts[n] < 0 || left < 0 || starts[n] > size || left > size - starts[n]) return n;
    const uint8_t *at = bytes + starts[n];
    uint32_t state = ~crc;
    for (; left >= 8; left -= 8, at += 8) {
      uint32_t low = state ^ four(at), high = four(at + 4);
      state = tables[1792 + (low & 255)] ^ tables[1536 + (low >> 8 & 255)] ^ tables[1280 + (low >> 16 & 255)] ^
              tables[1024 + (low >> 24)] ^ tables[768 + (high & 255)] ^ tables[512 + (high >> 8 & 255)] ^
              tables[256 + (high >> 16 & 255)] ^ tables[high >> 24];
    }
    for (; left; left--) state = tables[(state ^ *at++) & 255] ^ state >> 8;
    hashes[n] = mixed(~state);
  }
  return count;
}
