/* expect: report. Handles the signal of a wild pointer, and leaves with success. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <setjmp.h>
static void leave(int number) { (void)number; puts("42"); exit(0); }
int main(void) {
    signal(SIGSEGV, leave);
    signal(SIGBUS, leave);
    signal(SIGILL, leave);
    int *volatile p = (int *)8;
    return *p;
}
