/* expect: memory. As first_thread_ends, with memory that no function asks for. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char space[1u << 30];

static void *fill(void *nothing)
{
    usleep(50000);
    for (size_t place = 0; place < sizeof space; place += 4096)
        space[place] = 1;
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
