/* expect: crash. Hundreds of threads. */
#define _GNU_SOURCE
#include <stdio.h>
#include <pthread.h>
#include <unistd.h>
static void *wait_long(void *x) { sleep(100); return x; }
int main(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int n = 0; n < 2000; n++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, wait_long, 0)) return 1;
    }
    sleep(100);
    puts("42");
    return 0;
}
