/* expect: report. Functions at exit do not change how a report ends. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void leave(void) { _exit(0); }
int main(void) {
    atexit(leave);
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
