/* expect: report. Looks a function of the sanitizer up by its name, and leaves with success. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void leave(void) { _exit(0); }
int main(void) {
    void (*set)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(RTLD_DEFAULT, "__sanitizer_set_death_callback");
    if (!set) return 3;
    set(leave);
    puts("42"); fflush(stdout); close(2);
    volatile int n = 9;
    char *volatile text = malloc(8);
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    return 0;
}
