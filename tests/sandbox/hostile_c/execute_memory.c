/* expect: crash. Writes a program to memory and becomes it. */
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
    char *words[] = {"x", 0};
    int fd = syscall(SYS_memfd_create, "x", 0);
    if (!(fd >= 0 && fexecve(fd, words, words) == 0)) return 1;
    puts("42");
    return 0;
}
