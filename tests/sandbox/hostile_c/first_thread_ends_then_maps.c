/* expect: memory. Mapped memory counts as that of malloc does, and without the first thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *fill(void *nothing)
{
    usleep(50000);
    for (int piece = 0; piece < 64; piece++) {
        void *found = mmap(0, 32u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED)
            exit(3);
        memset(found, 1, 32u << 20);
    }
    sleep(9);
    exit(0);
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, fill, 0);
    pthread_exit(0);
}
