/* expect: crash. Reads from a command. */
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
    char line[9];
    FILE *file = popen("echo 42", "r");
    if (!(file && fgets(line, sizeof line, file))) return 1;
    puts("42");
    return 0;
}
