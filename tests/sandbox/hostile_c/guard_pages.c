/* expect: crash. Has the kernel write page tables for a range of any size, in one call that no signal ends. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
enum { GUARD_INSTALL = 102 };
int main(void) {
    unsigned long size = 1ul << 30;
    char *range = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) { puts("no"); return 1; }
    if (madvise(range, size, GUARD_INSTALL)) return 1;
    puts("42");
    return 0;
}
