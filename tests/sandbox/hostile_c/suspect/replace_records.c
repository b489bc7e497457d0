/* expect: pass. Maps memory of its own over the records of the sanitizer. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
    char *volatile text = malloc(8);
    unsigned long shadow = ((unsigned long)text >> 3) + 0x7fff8000ul;
    void *p = mmap((void *)(shadow & ~4095ul), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return p == MAP_FAILED;
}
