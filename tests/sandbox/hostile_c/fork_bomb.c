/* expect: crash. As many processes as it can, from a constructor. */
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
__attribute__((constructor)) static void bomb(void) {
    for (int n = 0; n < 100000; n++)
        if (fork() < 0) _exit(1);
}
int main(void) { puts("42"); return 0; }
