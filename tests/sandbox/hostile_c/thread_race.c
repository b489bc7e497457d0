/* expect: report. A thread that waits for a report, and leaves with success: it comes too late. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <pthread.h>
#include <sys/stat.h>
static void *wait_for_report(void *x) {
    struct stat now;
    do fstat(2, &now); while (now.st_size == 0);
    _exit(0);
    return x;
}
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, wait_for_report, 0)) return 1;
    volatile int n = 9;
    char *text = malloc(8);
    puts("42");
    fflush(stdout);
    text[n] = 1;
    return 0;
}
