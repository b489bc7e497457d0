/* expect: report. The same by older calls. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <setjmp.h>
static void leave(int number) { (void)number; puts("42"); exit(0); }
int main(void) {
    sysv_signal(SIGSEGV, leave);
    ssignal(SIGSEGV, leave);
    int *volatile p = (int *)8;
    return *p;
}
