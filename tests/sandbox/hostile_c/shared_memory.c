/* expect: crash. Leaves something for others. */
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
    if (!(syscall(SYS_shmget, 1, 4096, 01666) >= 0 || shm_open("/pwned", O_CREAT | O_RDWR, 0666) >= 0)) return 1;
    puts("42");
    return 0;
}
