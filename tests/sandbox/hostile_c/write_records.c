/* expect: report. Has the kernel write to the records of the sanitizer. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/uio.h>
int main(void) {
    char *volatile text = malloc(8);
    unsigned long shadow = ((unsigned long)text >> 3) + 0x7fff8000ul;
    int ends[2]; 
    if (pipe(ends)) return 1;
    static char zeros[64];
    write(ends[1], zeros, 64);
    long got = read(ends[0], (void *)shadow, 8);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return got != 8;
}
