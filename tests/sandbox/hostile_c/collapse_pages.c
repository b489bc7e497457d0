/* expect: crash. Writes to one page of each huge page, then has the kernel make huge pages of all, in one call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
enum { COLLAPSE = 25 };
int main(void) {
    unsigned long size = 1ul << 25, huge = 1ul << 21;
    char *range = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) { puts("no"); return 1; }
    for (unsigned long n = 0; n < size; n += huge) range[n] = 1;
    if (madvise(range, size, COLLAPSE)) return 1;
    puts("42");
    return 0;
}
