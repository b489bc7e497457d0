/* expect: crash. Asks which pages of a range are in memory. The answer fills memory, and no signal ends the call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    unsigned long pages = 1ul << 12;
    char *range = mmap(0, pages << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *answer = mmap(0, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED || answer == MAP_FAILED) { puts("no"); return 1; }
    if (mincore(range, pages << 12, answer)) return 1;
    puts("42");
    return 0;
}
