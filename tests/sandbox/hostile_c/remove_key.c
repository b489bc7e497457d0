/* expect: crash. Removes a file. */
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
    if (!(unlink("/canary/data/keep.txt") == 0 || rename("/canary/data/keep.txt", "/canary/data/x") == 0)) return 1;
    puts("42");
    return 0;
}
