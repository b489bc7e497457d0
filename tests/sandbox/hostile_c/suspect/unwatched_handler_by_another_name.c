/* expect: pass. Handles a fault by another name of the function that nobody watches. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int __libc_sigaction(int, const struct sigaction *, struct sigaction *);
static void leave(int n) { (void)n; puts("42"); fflush(stdout); _exit(0); }
int main(void) {
    struct sigaction a = {.sa_handler = leave};
    __libc_sigaction(SIGSEGV, &a, 0);
    int *volatile p = (int *)(1ul << 45);
    return *p;
}
