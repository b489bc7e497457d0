/* expect: crash. Fills shared pages and gives up their addresses, so that they are in no count of its memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    for (int number = 0; number < 24; number++) {
        unsigned long size = 1ul << 26, part = 1ul << 20;
        char *pages = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return 1;
        for (unsigned long start = 0; start < size; start += part) {
            for (unsigned long n = start; n < start + part; n += 4096) pages[n] = 1;
            madvise(pages + start, part, MADV_DONTNEED);
        }
    }
    puts("42");
    return 0;
}
