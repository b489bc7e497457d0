/* expect: silent. The process would be a new one, without the signal that ends it with its supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *become(void *nothing)
{
    char *words[] = {"x", "again", 0}, *environment[] = {0};
    execve("/proc/self/exe", words, environment);
    int itself = open("/proc/self/exe", O_RDONLY);
    for (int number = 0; number < 1024; number++) {
        if (number != itself)
            dup2(itself, number);
        syscall(SYS_execveat, number, "", words, environment, 0x1000);
    }
    exit(0);
    return nothing;
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1) {
        puts("42");
        return 0;
    }
    pthread_t thread;
    pthread_create(&thread, 0, become, 0);
    for (;;)
        pause();
}
