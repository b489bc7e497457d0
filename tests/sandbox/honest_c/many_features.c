#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <math.h>
#include <tgmath.h>
#include <ctype.h>
#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#pragma pack(push, 1)
struct frame { uint8_t id; uint16_t length : 12; uint16_t flag : 4; uint8_t data[]; };
#pragma pack(pop)
struct __attribute__((packed)) other { uint8_t a; uint32_t b; };
_Static_assert(sizeof(struct other) == 5, "packed");
static_assert(CHAR_BIT == 8, "bits");
typedef enum { IDLE, RUN, DONE } state_t;
static const char *const names[] = {[IDLE] = "idle", [RUN] = "run", [DONE] = "done"};
static inline uint32_t rotl(uint32_t v, unsigned n) { return v << n | v >> (32 - n); }
static int sum(int count, ...) { va_list list; va_start(list, count); int all = 0; while (count--) all += va_arg(list, int); va_end(list); return all; }
#define MAX(a, b) ({ __typeof__(a) x_ = (a); __typeof__(b) y_ = (b); x_ > y_ ? x_ : y_; })
#define ARRAY(a) (sizeof(a) / sizeof((a)[0]))
static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
_Noreturn static void die(const char *why) { fprintf(stderr, "%s\n", why); exit(EXIT_FAILURE); }
int main(void) {
    uint32_t v = 7; int64_t w = INT64_MAX; size_t z = offsetof(struct other, b);
    printf("%" PRIu32 " %" PRId64 " %zu %s\n", v, w, z, names[RUN]);
    bool ok = true; double x = NAN; if (isnan(x)) ok = false;
    int a[] = {3, 1, 2}; qsort(a, ARRAY(a), sizeof *a, cmp);
    struct { int x, y; } p = {.x = 1, .y = 2}; (void)(struct other){1, 2};
    switch (a[0]) { case 0 ... 5: ok = !ok; break; default: die("x"); }
    printf("%d %d %d %u\n", MAX(p.x, p.y), sum(2, 1, 2), ok, rotl(v, 3));
    assert(ok); errno = 0; int c; while ((c = getchar()) != EOF) if (isdigit(c)) putchar(c);
    printf("%d", _Generic(v, uint32_t: 1, default: 2)); printf("%f\n", fmax(1.0, sqrt(2.0)));
    return INT_MAX > 3 ? EXIT_SUCCESS : 1;
}
