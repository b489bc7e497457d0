/* expect: memory. The stack of a thread counts as well. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *fill(void *nothing)
{
    char room[768 << 20];
    memset(room, 1, sizeof room);
    sleep(9 + room[5] - room[6]);
    exit(0);
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 800u << 20);
    if (pthread_create(&thread, &attributes, fill, 0))
        return 3;
    pthread_join(thread, 0);
    return 0;
}
