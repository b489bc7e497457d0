/* expect: crash. Becomes itself once more, with options for the sanitizer in its environment. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argv;
    if (argc < 2) {
        char *words[] = {"x", "y", 0}, *env[] = {"ASAN_OPTIONS=exitcode=0:handle_segv=0:log_path=/dev/null", 0};
        execve("/proc/self/exe", words, env);
        return 1;
    }
    puts("42"); fflush(stdout);
    volatile int n = 9;
    char *volatile text = malloc(8);
    text[n] = 1;
    fprintf(stderr, "%d", text[n]);
    return 0;
}
