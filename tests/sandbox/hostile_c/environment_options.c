/* expect: report. Options in its own environment come too late. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    putenv("ASAN_OPTIONS=halt_on_error=0:exitcode=0");
    volatile int n = 9;
    char *text = malloc(8);
    text[n] = 1;
    puts("42");
    return 0;
}
