/* expect: crash. Writes a program to its output and becomes it. */
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
    write(1, "#!/bin/sh\necho 42\n", 18);
    if (!(syscall(SYS_execveat, 1, "", words, words, AT_EMPTY_PATH) == 0)) return 1;
    puts("42");
    return 0;
}
