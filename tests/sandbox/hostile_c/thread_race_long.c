/* expect: report. A thread that leaves with success as soon as a report begins: the text of the report counts then. */
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
    char *volatile text = malloc(8);
    puts("42");
    fflush(stdout);
    free(text);
    return text[1];
}
