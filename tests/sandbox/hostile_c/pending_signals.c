/* expect: crash. Keeps signals for itself, of which all processes of a user have so many in all. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    sigset_t all;
    struct timespec at_once = {0, 0};
    int kept = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (int n = 0; n < 1000; n++) kill(getpid(), SIGRTMIN);
    while (sigtimedwait(&all, 0, &at_once) > 0) kept++;
    if (kept < 500) return 1;
    puts("42");
    return 0;
}
