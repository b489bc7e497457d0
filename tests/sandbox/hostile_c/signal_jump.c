/* expect: report. The same with a jump. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <setjmp.h>
static jmp_buf back;
static void leave(int number) { longjmp(back, number); }
int main(void) {
    signal(SIGSEGV, leave);
    if (!setjmp(back)) { int *volatile p = (int *)8; return *p; }
    puts("42");
    return 0;
}
