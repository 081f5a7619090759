/* Reads many texts per call: times in ISO 8601 for `times.py`, and words of a list for `words.py`. Both have the same in Python. */

#include <stdint.h>
#include <string.h>

typedef struct { /* text n has lengths[n] bytes, from bytes[starts[n]] on */
  const char *bytes;
  const int64_t *starts, *lengths;
} texts;

enum { LONGEST = 35 }; /* characters of `2024-05-01T12:00:00.123456789+02:00` */

/* The number of so many digits; -1 if there are others between. */
static int64_t number(const char *at, int digits) {
  int64_t sum = 0;
  for (int i = 0; i < digits; i++) {
    if (at[i] < '0' || at[i] > '9') return -1;
    sum = 10 * sum + at[i] - '0';
  }
  return sum;
}

/* Days from 1970 to the first of a month. */
static int64_t days_before(int64_t year, int64_t month) {
  /* Counts years from March, so that the leap day is the last one; and 400 years more, so that no number is negative. */
  int64_t since_march = (month + 9) % 12, years = year + 399 + (month > 2);
  int64_t leap_days = years / 4 - years / 100 + years / 400;
  return 365 * years + leap_days + (153 * since_march + 2) / 5 - 719468 - 146097;
}

/* Seconds east of UTC of a zone: nothing, `Z`, `+hh`, `+hhmm`, `+hh:mm`, or one with a minus. Returns 0 if it is none. */
static int read_zone(const char *at, int64_t length, int64_t *offset) {
  *offset = 0;
  if (!length || (length == 1 && (*at == 'Z' || *at == 'z'))) return 1;
  int64_t hours = number(at + 1, 2), minutes = length == 3 ? 0 : number(at + (length == 6 ? 4 : 3), 2);
  *offset = (*at == '-' ? -1 : 1) * (3600 * hours + 60 * minutes);
  return (*at == '+' || *at == '-') && (length == 3 || length == 5 || (length == 6 && at[3] == ':')) && hours >= 0 &&
         hours <= 23 && minutes >= 0 && minutes <= 59;
}

/* Microseconds since midnight of `hh:mm`, `hh:mm:ss` or `hh:mm:ss.f` with a zone. `at` has zeros behind its end. */
static int read_clock(const char *at, int64_t length, int64_t *micros) {
  int64_t hour = number(at, 2), minute = number(at + 3, 2), second = 0, fraction = 0, offset, end = 5;
  if (hour < 0 || hour > 23 || at[2] != ':' || minute < 0 || minute > 59) return 0;
  if (at[5] == ':') {
    second = number(at + 6, 2);
    if (second < 0 || second > 60) return 0; /* 60: a leap second */
    end = 8;
    if ((at[8] == '.' || at[8] == ',') && number(at + 9, 1) >= 0) {
      int digits = 1;
      while (digits < 9 && number(at + 9 + digits, 1) >= 0) digits++;
      for (int i = 0; i < 6; i++) fraction = 10 * fraction + (i < digits ? at[9 + i] - '0' : 0);
      end = 9 + digits;
    }
  }
  if (!read_zone(at + end, length - end, &offset)) return 0;
  *micros = (3600 * hour + 60 * minute + second - offset) * 1000000 + fraction;
  return 1;
}

static int read_time(const char *text, int64_t length, int64_t *time) {
  char at[LONGEST + 7] = {0}; /* zeros behind the text: no place of a form lies outside */
  if (length < 10 || length > LONGEST) return 0;
  memcpy(at, text, (size_t)length);
  int64_t year = number(at, 4), month = number(at + 5, 2), day = number(at + 8, 2), micros = 0;
  if (year < 0 || at[4] != '-' || month < 1 || month > 12 || at[7] != '-' || day < 1) return 0;
  int64_t first = days_before(year, month);
  if (day > 28 && day > (month < 12 ? days_before(year, month + 1) : days_before(year + 1, 1)) - first) return 0;
  if (length > 10 && ((at[10] != 'T' && at[10] != 't' && at[10] != ' ') || !read_clock(at + 11, length - 11, &micros)))
    return 0;
  *time = (first + day - 1) * 86400 * 1000000 + micros;
  return 1;
}

/* For each text the microseconds since 1970, and whether it is a time. If not, its number is 0. */
void read_times(const texts *given, int64_t count, int64_t *times, uint8_t *ok) {
  for (int64_t i = 0; i < count; i++) {
    times[i] = 0;
    ok[i] = (uint8_t)read_time(given->bytes + given->starts[i], given->lengths[i], times + i);
  }
}

/* For each text the place of the same word, or -1. The words are sorted by length, then by bytes. */
void find_words(const texts *words, int64_t word_count, const texts *given, int64_t count, int64_t *places) {
  for (int64_t i = 0; i < count; i++) {
    const char *text = given->bytes + given->starts[i];
    int64_t length = given->lengths[i];
    places[i] = -1;
    for (int64_t low = 0, high = word_count; low < high;) {
      int64_t middle = (low + high) / 2, longer = words->lengths[middle] - length;
      int order = longer ? (longer > 0 ? 1 : -1) : memcmp(words->bytes + words->starts[middle], text, (size_t)length);
      if (!order) {
        places[i] = middle;
        break;
      }
      if (order < 0) low = middle + 1;
      else high = middle;
    }
  }
}
