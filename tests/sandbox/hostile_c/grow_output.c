/* expect: output limit. Makes its output large without printing. */
#define _GNU_SOURCE
#include <stdio.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    if (ftruncate(1, 1l << 40)) return ftruncate(1, (1 << 20) + 1);
    puts("42");
    return 0;
}
