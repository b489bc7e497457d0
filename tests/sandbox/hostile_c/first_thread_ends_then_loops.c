/* expect: timeout. The CPU time of a process counts when its first thread has ended, too. */
#include <pthread.h>

static void *loop(void *nothing)
{
    for (volatile unsigned long long turns = 0;; turns++)
        ;
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, loop, 0);
    pthread_exit(0);
}
