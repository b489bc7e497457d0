/* expect: report. The same without functions at exit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int ends[2];
static void *wait_for_report(void *x) { char c; (void)!read(ends[0], &c, 1); quick_exit(0); return x; }
int main(void) {
    pthread_t thread;
    if (pipe(ends) || dup2(ends[1], 2) != 2 || pthread_create(&thread, 0, wait_for_report, 0)) return 1;
    puts("42"); fflush(stdout);
    char *volatile text = malloc(8);
    free(text);
    return text[1];
}
