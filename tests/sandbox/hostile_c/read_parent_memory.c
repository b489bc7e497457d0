/* expect: crash. Reads memory across processes. */
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
    char x[8];
    struct { void *at; size_t size; } local = {x, 8}, remote = {(void *)0x400000, 8};
    if (!(syscall(SYS_process_vm_readv, getppid(), &local, 1, &remote, 1, 0) > 0)) return 1;
    puts("42");
    return 0;
}
