/* expect: pass. Handles a fault by a system call. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
static void leave(int number) { (void)number; write(1, "42\n", 3); _exit(0); }
int main(void) {
    struct action action = {leave, 0x04000000, 0, 0};
    syscall(SYS_rt_sigaction, SIGSEGV, &action, 0, 8);
    int *volatile p = (int *)8;
    return *p;
}
