/* expect: report. The same by the newer call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <setjmp.h>
static void leave(int number) { (void)number; puts("42"); exit(0); }
int main(void) {
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGSEGV, &action, 0);
    signal(SIGSEGV, leave);
    int *volatile p = (int *)8;
    return *p;
}
