/* expect: pass. Known limitation: a program that goes round the C library can hide its own fault. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <setjmp.h>
#include <sys/syscall.h>
struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
static void leave(int number) { (void)number; write(1, "42\n", 3); _exit(0); }
int main(void) {
    struct action action = {leave, 0x04000000, 0, 0};
    syscall(SYS_rt_sigaction, SIGSEGV, &action, 0, 8);
    int *volatile p = (int *)8;
    return *p;
}
