/* expect: pass. Has the kernel empty the records of the sanitizer. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
    char *volatile text = malloc(8);
    unsigned long shadow = ((unsigned long)text >> 3) + 0x7fff8000ul;
    int p = madvise((void *)(shadow & ~4095ul), 4096, MADV_DONTNEED);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return p;
}
