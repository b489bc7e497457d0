/* expect: crash. Calls that only administrators need. */
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
    char event[128] = {0, 0, 0, 0, 112};
    if (!(syscall(SYS_bpf, 0, 0, 0) >= 0 || syscall(SYS_perf_event_open, event, 0, -1, -1, 0) >= 0 || syscall(SYS_userfaultfd, 0) >= 0 || syscall(SYS_keyctl, 0, -3, 0) >= 0)) return 1;
    puts("42");
    return 0;
}
