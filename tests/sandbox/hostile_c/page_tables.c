/* expect: memory. Reads an address in each of many pages, so that the kernel fills memory with page tables. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    unsigned long size = 1ul << 40, sum = 0;
    char *pages = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) { puts("no"); return 1; }
    madvise(pages, size, MADV_NOHUGEPAGE);
    for (unsigned long n = 0; n < size; n += 1ul << 21) sum += ((volatile char *)pages)[n];
    puts("42");
    return sum != 0;
}
