/* expect: memory. The first thread of a process has no memory in /proc once it has ended. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *fill(void *nothing)
{
    usleep(50000);
    for (int piece = 0; piece < 64; piece++)
        memset(malloc(32u << 20), 1, 32u << 20);
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
