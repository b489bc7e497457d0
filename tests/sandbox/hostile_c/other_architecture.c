/* expect: crash. System calls of 32-bit programs, in instructions made at run time. */
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
    /* getpid by int 0x80: the kernel kills whoever calls it as another architecture. */
    unsigned char code[] = {0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3};
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    memcpy(page, code, sizeof code);
    ((void (*)(void))page)();
    puts("42");
    return 0;
}
