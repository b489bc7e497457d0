/* expect: pass. Looks a function up by a name with its version. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
void *look(void *, const char *) __asm__("\"dlsym@GLIBC_2.34\"");
void *(*volatile pointer)(void *, const char *) = look;
int main(void) {
    void (*unpoison)(void *, size_t) = (void (*)(void *, size_t))pointer(0, "__asan_unpoison_memory_region");
    char *volatile text = malloc(8);
    if (!unpoison) return 3;
    unpoison(text, 64);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return 0;
}
