/* expect: timeout. Ignores the signal of its CPU limit. */
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
    for (int n = 1; n < 65; n++) signal(n, SIG_IGN);
    for (volatile int n = 0;; n = 1 - n) {}
}
