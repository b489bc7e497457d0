/* expect: crash. Becomes the dynamic linker, which would run another file for it. */
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
    char *words[] = {"ld", "/bin/true", 0};
    if (!(syscall(SYS_execveat, AT_FDCWD, "/lib64/ld-linux-x86-64.so.2", words, words, 0) == 0)) return 1;
    puts("42");
    return 0;
}
