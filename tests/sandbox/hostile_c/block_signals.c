/* expect: report. Blocks the signals of faults, which the sanitizer then does not hear of. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
int main(void) {
    sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0);
    puts("42"); fflush(stdout);
    int *volatile p = (int *)(1ul << 45);
    return *p;
}
