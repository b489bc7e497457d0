/* expect: report. Another thread ends the program by a signal while the report is written. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *wait_for_report(void *x) { while (lseek(2, 0, SEEK_END) < 90); raise(SIGKILL); return x; }
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, wait_for_report, 0)) return 1;
    puts("42"); fflush(stdout);
    char *volatile text = malloc(8);
    free(text);
    return text[1];
}
