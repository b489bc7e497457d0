/* expect: crash. Threads with descriptors of their own, each up to the limit of a process. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static char stack[65536] __attribute__((aligned(16)));
static int wait_long(void *x) { (void)x; for (;;) pause(); }
int main(void) {
    int alone = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    int failed = syscall(436, 1000, 2000, 2); /* close_range, CLOSE_RANGE_UNSHARE */
    failed &= clone(wait_long, stack + sizeof stack, alone, 0) < 0 ? -1 : 0;
    if (failed) return 1;
    puts("42");
    return 0;
}
