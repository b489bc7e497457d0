/* expect: crash. Asks the kernel to open files in its place. */
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
    char ring[256] = {0};
    if (!(syscall(SYS_io_uring_setup, 4, ring) >= 0)) return 1;
    puts("42");
    return 0;
}
