/* expect: crash. Makes the kernel signal its supervisor. */
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
    int ends[2];
    if (pipe(ends)) return 1;
    if (!(fcntl(ends[0], F_SETOWN, getppid()) == 0 && fcntl(ends[0], F_SETFL, O_ASYNC) == 0)) return 1;
    puts("42");
    return 0;
}
