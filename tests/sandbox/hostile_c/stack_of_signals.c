/* expect: report. Has a stack for signals that does not exist. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    stack_t s = {.ss_sp = (void *)(1ul << 44), .ss_size = 1 << 16};
    sigaltstack(&s, 0);
    puts("42"); fflush(stdout);
    int *volatile p = (int *)(1ul << 45);
    return *p;
}
