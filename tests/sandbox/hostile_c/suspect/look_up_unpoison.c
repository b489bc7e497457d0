/* expect: pass. Looks a function of the sanitizer up by its name, and has it call all memory addressable. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    void (*unpoison)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "__asan_unpoison_memory_region");
    char *volatile text = malloc(8);
    if (!unpoison) return 3;
    unpoison(text, 64);
    volatile int n = 9;
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    puts("42");
    return 0;
}
