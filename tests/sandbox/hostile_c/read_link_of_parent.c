/* expect: crash. Tells which files another process has open. */
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
    char path[64], link[256];
    snprintf(path, sizeof path, "/proc/%d/fd/0", getppid());
    if (!(readlink(path, link, sizeof link) > 0)) return 1;
    puts("42");
    return 0;
}
