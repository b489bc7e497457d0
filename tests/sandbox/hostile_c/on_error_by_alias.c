/* expect: no compile. The same by an alias. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void leave(void) { _exit(0); }
void __asan_on_error(void) __attribute__((alias("leave")));
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
