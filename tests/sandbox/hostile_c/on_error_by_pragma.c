/* expect: report. The same by a pragma, which has no effect on what the file itself defines. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#pragma redefine_extname leave __asan_on_error
void leave(void) { _exit(0); }
int main(void) {
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
