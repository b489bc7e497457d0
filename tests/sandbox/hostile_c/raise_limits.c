/* expect: crash. More memory, time and files. */
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
    unsigned long more[2] = {~0ul, ~0ul};
    if (!(syscall(SYS_prlimit64, 0, 7, &more, 0) == 0 || syscall(SYS_setrlimit, 0, &more) == 0)) return 1;
    puts("42");
    return 0;
}
