/* expect: pass. Maps memory over the records by another name of the function. */
#include <stdio.h>
#include <stdlib.h>
void *__mmap(void *, unsigned long, int, int, int, long);
int main(void) {
    char *volatile text = malloc(8);
    unsigned long shadow = ((unsigned long)text >> 3) + 0x7fff8000ul;
    void *p = __mmap((void *)(shadow & ~4095ul), 4096, 3, 0x32, -1, 0);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return p == (void*)-1;
}
