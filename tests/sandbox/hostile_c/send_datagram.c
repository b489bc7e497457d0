/* expect: crash. Sends a datagram. */
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
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(47111), .sin_addr = {htonl(0x7f000001)}};
    if (!(sendto(s, "x", 1, 0, (struct sockaddr *)&at, sizeof at) == 1)) return 1;
    puts("42");
    return 0;
}
