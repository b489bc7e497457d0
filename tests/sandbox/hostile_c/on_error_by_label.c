/* expect: no compile. The same under another name. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void leave(void) __asm__("__asan_on_error");
void leave(void) { _exit(0); }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
